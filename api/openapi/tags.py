"""The tags of the document: one per area of the interface."""

from collections.abc import Mapping
from typing import Final

TAGS: Final[Mapping[str, str]] = {
    "Platform Configuration": "Global platform settings.",
    "Customers": "Create and update customers.",
    "Contact Verification": (
        "Verify a customer's e-mail and phone with one-time codes; only where the payment provider"
        " mandates it."
    ),
    "Strong Customer Authentication": "Authorize money movement where SCA is required.",
    "KYC/KYB Verifications": (
        "Identity and business verification, beneficial owners, triggering verification."
    ),
    "Documents": "Upload verification documents for customers and beneficial owners.",
    "Internal Accounts": "Accounts held in the service.",
    "External Accounts": "Bank accounts and wallets outside the service.",
    "Same-Currency Transfers": (
        "Transfers between internal and external accounts in one currency."
    ),
    "Cross-Currency Transfers": "Create and confirm quotes.",
    "Transactions": "Read transactions; approve or reject those that await a decision.",
    "Webhooks": "Webhook endpoint configuration and notifications.",
    "Invitations": "Create, claim and manage UMA invitations.",
    "Sandbox": "Simulate the card network and other counterparties; not available in production.",
    "API Tokens": "Manage API tokens.",
    "Exchange Rates": "Cached FX rates, platform-specific fees included.",
    "Discoveries": (
        "Discover payment rails, banks and providers for a country and currency corridor."
    ),
    "Embedded Wallet Auth": (
        "Register and verify end-user credentials that sign Embedded Wallet actions."
    ),
    "Agent Management": (
        "The platform creates and manages agents: policy, pause, deletion, device codes, approvals."
    ),
    "Agent Operations": ("Operations of an agent with its own credentials, within its policy."),
    "Cards": (
        "Issue debit cards against an internal account, freeze, unfreeze, close, manage funding"
        " sources."
    ),
    "Stablecoins": "Link provider accounts, register stablecoins, mint and burn.",
    "Network Events": (
        "Send events of the card network and read their outcomes; at the server's root."
    ),
    "Health": "Liveness and readiness, at the server's root and without credentials.",
}
"""The description of every tag, in the order of the interface."""

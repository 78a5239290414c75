"""The areas of the interface: what the service does, as its document is divided."""

from collections.abc import Mapping
from typing import Final

AREAS: Final[Mapping[str, str]] = {
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
    "Transactions": "Read transactions, and decide on those that wait for the platform.",
    "Webhooks": "Webhook endpoint configuration and notifications.",
    "Invitations": "Create, claim and manage UMA invitations.",
    "Sandbox": "Trigger test cases; there is nothing of this in production.",
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
    "Agent Operations": (
        "Calls of an agent with its own credentials, for its customer and within its policy."
    ),
    "Cards": (
        "Issue debit cards against an internal account, freeze, unfreeze, close, manage funding"
        " sources."
    ),
    "Stablecoins": "Link provider accounts, register stablecoins, mint and burn.",
    "Health": "Is the process alive, and can it work? At the server's root, without credentials.",
}
"""Every area with what it is for: the table of the interface, and what is added to it."""

"""Unions and enums that have a name in the document, so that a generated client has one type."""

from collections.abc import Mapping
from typing import Any, Final

from cardledger.api.openapi.signatures import Mode
from cardledger.schema.wire import common, config, tokens
from cardledger.schema.wire.agents import actions, agents
from cardledger.schema.wire.cards import (
    card_transaction_events,
    card_transactions,
    cards,
    transactions,
)
from cardledger.schema.wire.customers import (
    account_variants,
    accounts,
    beneficial_owners,
    beneficiaries,
    customers,
    documents,
    external_accounts,
    identity,
    people,
    uploads,
    verifications,
)
from cardledger.schema.wire.exchange import quotes
from cardledger.schema.wire.payments import counterparties, parts
from cardledger.schema.wire.webhooks import endpoints

UNIONS: Final[Mapping[str, tuple[Any, Mode]]] = {
    "AccountInfo": (external_accounts.AccountInfoResource, "serialization"),
    "AccountInfoCreate": (external_accounts.AccountInfoCreate, "validation"),
    "Beneficiary": (beneficiaries.BeneficiaryResource, "serialization"),
    "BeneficiaryCreate": (beneficiaries.BeneficiaryCreate, "validation"),
    "Customer": (customers.CustomerResource, "serialization"),
    "CustomerCreate": (customers.CustomerCreate, "validation"),
    "CustomerUpdate": (customers.CustomerUpdate, "validation"),
    "Payment": (transactions.PaymentResource, "serialization"),
    "PaymentDestination": (parts.PaymentDestination, "serialization"),
    "PaymentSource": (parts.PaymentSource, "serialization"),
    "Transaction": (transactions.TransactionResource, "serialization"),
}
"""Unions by name, and whether they are read or written."""

ENUMS: Final[Mapping[str, Any]] = {
    "AccountPurpose": customers.Purpose,
    "AgentActionStatus": actions.ActionStatus,
    "AgentActionType": actions.ActionType,
    "AgentPermission": agents.AgentPermissionName,
    "AnnualIncomeRange": customers.AnnualIncome,
    "BankAccountType": account_variants.KIND,
    "BeneficialOwnerRole": beneficial_owners.Role,
    "BeneficiaryVerificationStatus": external_accounts.VerificationStatus,
    "BusinessSourceOfFunds": customers.BusinessSourceOfFunds,
    "BusinessType": customers.BusinessType,
    "BlockchainNetwork": parts.Network,
    "CardState": cards.CardState,
    "CardTransactionEventType": card_transaction_events.EventKind,
    "CardTransactionStatus": card_transactions.CardTransactionStatus,
    "CardTransactionStatusReason": card_transactions.StatusReason,
    "CounterpartyFieldName": counterparties.CounterpartyFieldName,
    "CryptoNetwork": quotes.CryptoNetwork,
    "CustomerType": customers.CustomerType,
    "DeclineReason": card_transactions.DeclineReason,
    "DocumentSide": documents.Side,
    "DocumentType": documents.DocumentType,
    "EntityType": customers.EntityType,
    "ExecutionMode": agents.ExecutionModeName,
    "ExternalAccountStatus": external_accounts.Status,
    "IncomingStatus": parts.IncomingStatus,
    "IdentityDocumentType": beneficiaries.DocumentType,
    "IndividualSourceOfFunds": customers.IndividualSourceOfFunds,
    "InternalAccountStatus": accounts.AccountStatus,
    "InternalAccountType": accounts.AccountType,
    "KycStatus": people.KycStatus,
    "LedgerAccount": card_transaction_events.LedgerAccount,
    "MonthlyTransactionCount": customers.MonthlyCount,
    "MonthlyTransactionVolume": customers.MonthlyVolume,
    "NetWorthRange": customers.NetWorth,
    "PaymentDirection": config.TransactionType,
    "PaymentRail": common.PaymentRail,
    "PepStatus": customers.PepStatus,
    "PersonTaxIdType": identity.PersonIdType,
    "PurposeOfPayment": parts.PurposeOfPayment,
    "RailSelectionMode": parts.RailSelectionMode,
    "RefundReason": parts.RefundReason,
    "RefundStatus": parts.RefundStatus,
    "SortOrder": common.SortOrder,
    "SourceOfWealth": customers.SourceOfWealth,
    "TaxIdType": identity.IdType,
    "TokenPermission": tokens.PermissionName,
    "TransactionStatus": transactions.TransactionStatus,
    "TransactionType": transactions.TransactionType,
    "TransferFailureReason": parts.FailureReason,
    "TransferStatus": parts.OutgoingStatus,
    "UploadStatus": uploads.UploadStatus,
    "VerificationProblemType": verifications.ProblemType,
    "VerificationStatus": verifications.VerificationStatus,
    "WebhookDeliveryState": endpoints.DeliveryState,
    "WebhookDisabledReason": endpoints.DisabledReason,
    "WebhookFailureReason": endpoints.GivenUpReason,
    "WebhookEndpointMode": endpoints.Mode,
    "WebhookEndpointState": endpoints.State,
}
"""Enums by name."""

"""The tables of the ledger; every table and column has a comment.

*Hot* tables (books, queues, outbox, deliveries) are written by every batch of the engine. They
have no foreign keys, which would cost one look-up for each row, and few indexes; the audit and the
tests verify what a foreign key would. All other tables have foreign keys.

Every hot row has `customer_id`, the cardholder; primary keys put it last, so that a database
distributed by it could hold them. Amounts are `bigint` minor units. Roles, rights and triggers are
in the migrations.
"""

from typing import Final

from cardledger.schema.tables.accounting import (
    books,
    calendars,
    chart_of_accounts,
    conversion_details,
    currencies,
    settlement_details,
    suspense_items,
)
from cardledger.schema.tables.agents import (
    agent_actions,
    agent_device_codes,
    agents,
)
from cardledger.schema.tables.authentication import (
    authentication_challenges,
    authentication_passkeys,
    authentication_resets,
    customer_authentication,
)
from cardledger.schema.tables.bank import (
    bank_lines,
    bank_payments,
    bank_statements,
    statement_proofs,
)
from cardledger.schema.tables.books import (
    card_transaction_events,
    card_transactions,
    deposits,
    entries,
    internal_accounts,
    system_accounts,
)
from cardledger.schema.tables.cards import (
    card_reveals,
    cards,
)
from cardledger.schema.tables.columns import metadata
from cardledger.schema.tables.customers import (
    beneficial_owners,
    customers,
    external_accounts,
    verifications,
)
from cardledger.schema.tables.documents import (
    document_contents,
    document_pieces,
    document_usage,
    documents,
)
from cardledger.schema.tables.exchange import exchange_rates, platform_exchange_rates
from cardledger.schema.tables.invitations import invitations
from cardledger.schema.tables.network_files import (
    break_history,
    breaks,
    file_proofs,
    file_refusals,
    line_matches,
    network_file_totals,
    network_files,
    network_lines,
)
from cardledger.schema.tables.payments import transfer_events, transfers
from cardledger.schema.tables.people import adjustments, person_changes
from cardledger.schema.tables.periods import (
    book_beginnings,
    book_verification_runs,
    book_verifications,
    closing_exceptions,
    closing_kinds,
    closings,
    seals,
)
from cardledger.schema.tables.platforms import (
    api_tokens,
    console_tickets,
    idempotency_keys,
    issued_client_ids,
    platforms,
    row_counts,
    row_quotas,
    schema_compatibility,
    server_keys,
)
from cardledger.schema.tables.proofs import external_account_challenges, kyc_links
from cardledger.schema.tables.queues import (
    acceptances,
    duplicates,
    enqueued_events,
    enqueued_events_progress,
    forged_messages,
    inbox,
    inbox_macs,
    inbox_shards,
    outcomes,
    parked,
    pending_pulls,
    rejection_retries,
    rejections,
    stalled_queues,
)
from cardledger.schema.tables.quotes import quotes
from cardledger.schema.tables.settlements import settlement_bookings
from cardledger.schema.tables.totals import (
    account_totals,
    posting_totals,
    posting_totals_progress,
    trial_balance_progress,
    trial_balances,
)
from cardledger.schema.tables.uploads import customer_upload_parts, customer_uploads
from cardledger.schema.tables.webhooks import (
    outbox,
    webhook_attempts,
    webhook_deliveries,
    webhook_endpoints,
    webhook_signing_keys,
)

APPEND_ONLY: Final = (
    card_transaction_events,
    transfer_events,
    entries,
    deposits,
    outcomes,
    rejections,
    acceptances,
    duplicates,
    forged_messages,
    rejection_retries,
    calendars,
    settlement_details,
    conversion_details,
    person_changes,
    posting_totals,
    account_totals,
    closing_exceptions,
    seals,
    book_beginnings,
    book_verification_runs,
    book_verifications,
    exchange_rates,
    platform_exchange_rates,
    network_file_totals,
    network_lines,
    line_matches,
    break_history,
    file_proofs,
    file_refusals,
    bank_lines,
    bank_payments,
    statement_proofs,
)
"""Tables without the right to change a row, and with a trigger that refuses every change."""

UNCHANGED: Final = (webhook_attempts, enqueued_events)
"""Tables whose rows are deleted after some time, and with a trigger that refuses other changes."""

__all__ = [
    "APPEND_ONLY",
    "UNCHANGED",
    "acceptances",
    "account_totals",
    "adjustments",
    "agent_actions",
    "agent_device_codes",
    "agents",
    "api_tokens",
    "authentication_challenges",
    "authentication_passkeys",
    "authentication_resets",
    "bank_lines",
    "bank_payments",
    "bank_statements",
    "beneficial_owners",
    "book_beginnings",
    "book_verification_runs",
    "book_verifications",
    "books",
    "break_history",
    "breaks",
    "calendars",
    "card_reveals",
    "card_transaction_events",
    "card_transactions",
    "cards",
    "chart_of_accounts",
    "closing_exceptions",
    "closing_kinds",
    "closings",
    "console_tickets",
    "conversion_details",
    "currencies",
    "customer_authentication",
    "customer_upload_parts",
    "customer_uploads",
    "customers",
    "deposits",
    "document_contents",
    "document_pieces",
    "document_usage",
    "documents",
    "duplicates",
    "enqueued_events",
    "enqueued_events_progress",
    "entries",
    "exchange_rates",
    "external_account_challenges",
    "external_accounts",
    "file_proofs",
    "file_refusals",
    "forged_messages",
    "idempotency_keys",
    "inbox",
    "inbox_macs",
    "inbox_shards",
    "internal_accounts",
    "invitations",
    "issued_client_ids",
    "kyc_links",
    "line_matches",
    "metadata",
    "network_file_totals",
    "network_files",
    "network_lines",
    "outbox",
    "outcomes",
    "parked",
    "pending_pulls",
    "person_changes",
    "platform_exchange_rates",
    "platforms",
    "posting_totals",
    "posting_totals_progress",
    "quotes",
    "rejection_retries",
    "rejections",
    "row_counts",
    "row_quotas",
    "schema_compatibility",
    "seals",
    "server_keys",
    "settlement_bookings",
    "settlement_details",
    "stalled_queues",
    "statement_proofs",
    "suspense_items",
    "system_accounts",
    "transfer_events",
    "transfers",
    "trial_balance_progress",
    "trial_balances",
    "verifications",
    "webhook_attempts",
    "webhook_deliveries",
    "webhook_endpoints",
    "webhook_signing_keys",
]

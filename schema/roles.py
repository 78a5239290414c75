"""The roles of a database, each with the least rights: who may write which table, who reads what.

A migration creates the roles and grants their rights, column by column. What is here says the same
for each table as a whole: `cardledger doctor` and the tests compare the database with it.
Source: docs/decisions/0048-roles.md
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from cardledger.schema import connections
from cardledger.schema.platform_views import VIEWS


class Role(StrEnum):
    """A role of PostgreSQL; in a database it is named `<database>_<role>`."""

    APP = "app"
    """What every process of releases before 0017 runs as; the operator's commands still do."""
    API = "api"
    WORKER = "worker"
    WEBHOOKS = "webhooks"
    READER = "reader"
    SUBMIT = "submit"
    FINANCE = "finance"
    """What reads the schema for finance, and has no right on any table."""


class Right(StrEnum):
    """What a person may do: a role without a login of its own, named `<database>_<right>`."""

    PREPARE = "prepare"
    APPROVE = "approve"


PROCESSES: Final = (Role.API, Role.WORKER, Role.WEBHOOKS)
"""The roles that processes run as."""

NEW: Final = (*PROCESSES, Role.READER, Role.SUBMIT)
"""The roles that take the place of `Role.APP`."""

TRUSTED: Final = tuple(role for role in Role if role is not Role.FINANCE)
"""The roles that an embedded server does not ask for a password: those of the system itself."""


def name_in(url: str, role: Role | Right) -> str:
    """Return the name of `role` in the database at `url`."""
    return f"{connections.parameters(url).get('dbname')}_{role}"


def names_in(url: str) -> list[str]:
    """Return the names of all roles of the database at `url`, without its people."""
    return [name_in(url, role) for role in (*Role, *Right)]


_NONE: Final[Mapping[Role, str]] = {}

WRITERS: Final[Mapping[str, Mapping[Role, str]]] = {
    # The books, which the engine alone writes.
    "card_transaction_events": {Role.WORKER: "a"},
    "card_transactions": {Role.WORKER: "aw"},
    "deposits": {Role.WORKER: "a"},
    "duplicates": {Role.WORKER: "a"},
    "entries": {Role.WORKER: "a"},
    "outcomes": {Role.WORKER: "a"},
    "parked": {Role.WORKER: "ad"},
    "pending_pulls": {Role.WORKER: "adw"},
    "settlement_details": {Role.WORKER: "a"},
    "conversion_details": {Role.WORKER: "a"},
    "posting_totals": {Role.WORKER: "a"},
    "account_totals": {Role.WORKER: "a"},
    "posting_totals_progress": {Role.WORKER: "w"},
    "trial_balances": {Role.WORKER: "aw"},
    "trial_balance_progress": {Role.WORKER: "w"},
    "suspense_items": {Role.WORKER: "aw"},
    "inbox_shards": {Role.WORKER: "w"},
    "stalled_queues": {Role.WORKER: "adw"},
    # The API opens accounts, without amounts, and closes them; it requests transfers.
    "internal_accounts": {Role.API: "aw", Role.WORKER: "w"},
    "transfers": {Role.API: "aw", Role.WORKER: "aw"},  # Workers add what arrives.
    "transfer_events": {Role.WORKER: "a"},
    "system_accounts": {Role.API: "a", Role.WORKER: "a"},
    "books": _NONE,  # By migrations, and by the functions that close and reopen periods.
    "calendars": _NONE,  # By the operator.
    "chart_of_accounts": _NONE,  # By migrations.
    "currencies": _NONE,  # By migrations.
    # Between processes.
    "acceptances": _NONE,  # By the trigger of the inbox.
    "forged_messages": {Role.WORKER: "a"},
    "inbox_macs": _NONE,  # By migrations.
    "enqueued_events": {Role.WORKER: "d"},  # And a function adds rows (`CALLED_BY_SUBMIT`).
    "enqueued_events_progress": {Role.WORKER: "w"},
    "inbox": {Role.API: "a", Role.WORKER: "ad"},
    "outbox": {Role.API: "a", Role.WORKER: "a", Role.WEBHOOKS: "adw"},
    "rejections": {Role.API: "a", Role.WORKER: "a"},
    "rejection_retries": {Role.API: "a"},
    # Resources.
    "agent_actions": {Role.API: "aw"},
    "agent_device_codes": {Role.API: "aw"},
    "agents": {Role.API: "aw"},
    "api_tokens": {Role.API: "adw"},
    "authentication_challenges": {Role.API: "adw"},
    "authentication_passkeys": {Role.API: "adw"},
    "authentication_resets": {Role.API: "adw"},
    "beneficial_owners": {Role.API: "aw"},
    "card_reveals": {Role.API: "aw"},
    "console_tickets": {Role.API: "ad"},
    "cards": {Role.API: "aw", Role.WORKER: "w"},
    "customer_authentication": {Role.API: "adw"},
    "customer_upload_parts": {Role.API: "ad"},
    "customer_uploads": {Role.API: "adw"},
    "customers": {Role.API: "aw"},
    "document_contents": {Role.API: "adw"},
    "document_pieces": {Role.API: "a"},  # Deleted with their document.
    "document_usage": {Role.API: "aw"},
    "documents": {Role.API: "adw"},
    "external_account_challenges": {Role.API: "aw"},
    "external_accounts": {Role.API: "aw"},
    "exchange_rates": _NONE,  # By the operator.
    "issued_client_ids": _NONE,  # By the trigger of `api_tokens`.
    "idempotency_keys": {Role.API: "aw"},
    "platform_exchange_rates": {Role.API: "a"},
    "invitations": {Role.API: "aw"},  # And a function claims one, of any platform.
    "kyc_links": {Role.API: "adw"},
    "platforms": {Role.API: "w"},
    "quotes": {Role.API: "aw", Role.WORKER: "dw"},
    "row_counts": _NONE,  # By the trigger of each table that is counted.
    "row_quotas": _NONE,  # By the operator.
    "server_keys": _NONE,  # By the command that rotates the server key.
    "verifications": {Role.API: "aw"},
    # Webhooks.
    "webhook_attempts": {Role.WEBHOOKS: "ad"},
    "webhook_deliveries": {Role.API: "aw", Role.WEBHOOKS: "adw"},
    "webhook_endpoints": {Role.API: "aw", Role.WEBHOOKS: "w"},
    "webhook_signing_keys": {Role.API: "a", Role.WEBHOOKS: "d"},
    # By functions that people call.
    "closing_exceptions": _NONE,
    "closings": _NONE,
    "seals": _NONE,
    "book_beginnings": _NONE,
    "network_files": _NONE,
    "network_file_totals": _NONE,
    "network_lines": _NONE,
    "line_matches": _NONE,
    "breaks": _NONE,
    "break_history": _NONE,
    "file_proofs": _NONE,
    "file_refusals": _NONE,
    "bank_statements": _NONE,
    "bank_lines": _NONE,
    "bank_payments": _NONE,
    "statement_proofs": _NONE,
    "book_verification_runs": _NONE,  # As the next.
    "book_verifications": _NONE,  # By the command that verifies, with the operator's login.
    "closing_kinds": _NONE,  # By migrations.
    "settlement_bookings": {Role.WORKER: "w"},  # And functions that import files add rows.
    "adjustments": {Role.WORKER: "w"},  # And functions add rows and decide on them, for people.
    "person_changes": _NONE,  # By the command that adds a person, with the login of the owner.
    # Of migrations.
    "alembic_version": _NONE,
    "schema_compatibility": _NONE,
}
"""What each new role may write: a (INSERT), w (UPDATE of some columns), d (DELETE).

Letters as in PostgreSQL's access lists. A table or role that is absent: nothing. No role may update
a whole row, nor truncate. For the old role, the union of the others and `platforms` INSERT.
Where there is a view for one platform (`platform_views`), the letters of the API are for the view.
"""

API_ON_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    # Whose credentials are they?
    "agent_device_codes": ("SELECT",),
    "agents": ("SELECT", "UPDATE (access_token_hash)"),
    "api_tokens": ("SELECT", "UPDATE (secret_hash, former_secret_hash, last_used_at)"),
    "card_reveals": ("SELECT (token_hash, card_id)",),
    "kyc_links": ("SELECT (token_hash, platform_id, expires_at)",),
    # Into which queue does an event belong?
    "cards": ("SELECT (id, customer_id, platform_id, currency)",),
    "internal_accounts": ("SELECT (id, customer_id, platform_id)",),
    # What became of it?
    "card_transaction_events": ("SELECT",),
    "card_transactions": ("SELECT",),
    "customers": ("SELECT (id, platform_customer_id, is_deleted)",),
    "outcomes": ("SELECT",),
    "rejections": ("SELECT (id, reason, detail)", "INSERT"),
    # Whose jobs are to be done, and whose documents are due to be deleted?
    "customer_uploads": ("SELECT (id, platform_id, status, completed_at)",),
    "documents": ("SELECT (platform_id, delete_after)",),
}
"""What the API may do to tables that have a view, for requests of any platform.

It authenticates callers, accepts events and finds their outcomes, many in one statement, and it
looks for what is due.
"""

UNREAD_BY_API: Final = ("acceptances", "duplicates", "entries", "pending_pulls")
"""Tables that the API's role could read before the views, and does not need to.

Of these, `entries` has had a view since 0125.
"""

CALLED_BY_SUBMIT: Final = ("enqueue(jsonb, text)", "outcome(text, text)")
"""Functions that a program with the role that submits may call."""

NOT_OF_SUBMIT: Final = "INSERT ON inbox"
"""What the role that submits could do before it had these functions."""

SECRETS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent_device_codes": ("code_hash", "agent_hash"),
    "agents": ("access_token_hash",),
    "api_tokens": ("secret_hash", "former_secret_hash"),
    "authentication_challenges": ("code_hash",),
    "beneficial_owners": ("identifier",),
    "card_reveals": ("token_hash",),
    "console_tickets": ("ticket_hash",),
    "customer_authentication": ("totp_secret", "recovery_hashes"),
    "customers": ("identifier",),
    "document_contents": ("content",),
    "document_pieces": ("content",),
    "documents": ("content_key", "document_number"),
    "idempotency_keys": ("answer",),
    "invitations": ("code", "url"),
    "kyc_links": ("token_hash",),
    "platforms": ("signing_key", "webhook_secret"),
    "server_keys": ("card_key",),
    "webhook_endpoints": ("secret", "former_secret"),
    "webhook_signing_keys": ("private_key",),
}
"""Columns with hashes of secrets, with what is encrypted with the server key, and with codes that
are a right by themselves."""

_WORDS: Final = {"INSERT": "a", "DELETE": "d", "UPDATE": "w"}


def on_table(table: str, role: Role) -> str:
    """Return what `role` may write to `table` itself, whatever it may by a view of it."""
    if role is not Role.API or table not in VIEWS:
        return WRITERS[table].get(role, "")
    rights = API_ON_TABLES.get(table, ())
    return "".join(_WORDS.get(right.partition(" ")[0], "") for right in rights)


def on_view(table: str, role: Role) -> str:
    """Return what `role` may write by the view of `table` for one platform."""
    return WRITERS[table].get(role, "") if role is Role.API else ""

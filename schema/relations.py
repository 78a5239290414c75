"""The tables and views that each revision of the schema created.

`cardledger.schema.tables` describes the newest revision only. What moves an older installation has
to know its own relations: a name that came later may belong to a table of the user's.
"""

from typing import Final

CREATED: Final = {
    "0001": (
        "alembic_version",
        "api_tokens",
        "card_reveals",
        "card_transaction_events",
        "card_transactions",
        "cards",
        "customers",
        "deposits",
        "entries",
        "inbox",
        "inbox_shards",
        "internal_accounts",
        "journal",
        "outbox",
        "outcomes",
        "parked",
        "pending_pulls",
        "platforms",
        "rejections",
        "system_accounts",
        "webhook_attempts",
        "webhook_deliveries",
    ),
    "0002": ("idempotency_keys",),
    "0003": ("external_accounts",),
    "0004": ("agent_device_codes", "agents"),
    "0005": ("agent_actions", "transfers"),
    "0006": ("beneficial_owners", "verifications"),
    "0007": ("webhook_endpoints", "webhook_signing_keys"),
    "0011": ("acceptances", "duplicates"),
    "0012": ("stalled_queues", "rejection_retries", "schema_compatibility"),
    "0018": ("server_keys",),
    "0019": ("forged_messages", "inbox_macs"),
    "0027": ("row_counts", "row_quotas"),
    "0034": ("enqueued_events", "enqueued_events_progress"),
    "0035": ("books", "calendars", "chart_of_accounts", "currencies", "settlement_details"),
    "0040": ("person_changes",),
    "0045": ("account_totals", "posting_totals", "posting_totals_progress"),
    "0050": ("suspense_items",),
    "0058": ("book_verifications", "closing_exceptions", "closing_kinds", "closings", "seals"),
    "0061": ("adjustments",),
    "0063": ("book_beginnings",),
    "0065": ("exchange_rates", "platform_exchange_rates"),
    "0067": (
        "authentication_challenges",
        "authentication_resets",
        "customer_authentication",
    ),
    "0069": ("document_contents", "document_usage", "documents"),
    "0070": ("customer_upload_parts", "customer_uploads"),
    "0074": (
        "break_history",
        "breaks",
        "file_proofs",
        "file_refusals",
        "line_matches",
        "network_file_totals",
        "network_files",
        "network_lines",
    ),
    "0077": ("authentication_passkeys",),
    "0079": ("external_account_challenges", "kyc_links"),
    "0081": ("transfer_events",),
    "0086": ("quotes",),
    "0090": ("conversion_details",),
    "0095": ("settlement_bookings",),
    "0099": ("bank_lines", "bank_payments", "bank_statements", "statement_proofs"),
    "0110": ("invitations",),
    "0120": ("console_tickets",),
    "0127": ("trial_balance_progress", "trial_balances"),
    "0143": ("document_pieces",),
    "0145": ("book_verification_runs",),
    "0150": ("issued_client_ids",),
}
"""Relations by the revision that created them. A released revision never changes."""


FUNCTIONS: Final = {
    "0034": ("card_transaction_json(uuid)", "enqueue(jsonb, text)", "outcome(text, text)"),
    "0045": ("summarize_entries()",),
    "0058": (
        "approve_closing(uuid)",
        "end_of_business_day(date)",
        "find_closing(uuid)",
        "prepare_closing(date, date, jsonb)",
        "prepare_reopening(uuid, text)",
        "refuse_second_request()",
        "lock_books()",
        "reject_closing(uuid, text)",
        "seal_closing(uuid, integer, text, bigint)",
    ),
    "0060": ("closing_findings(date, date)", "closing_trial_balance(date)"),
    "0063": ("begin_books(date)", "moved_by_beginning(date, date, timestamp with time zone)"),
    "0075": (
        "line_sign(text)",
        "folded(text)",
        "begin_network_file(uuid, text, text, date, text)",
        f"add_network_lines(uuid{', text' * 14})",
        "finish_network_file(uuid, text, jsonb)",
        "match_round(uuid, text, text, text, text, boolean, boolean)",
        "add_events(text)",
        "match_cards(uuid)",
        "set_card_keys()",
        "rewrite_open()",
        "network_file(uuid)",
        "match_network_file(uuid, boolean)",
        "ledger_of_file(uuid, boolean)",
        "explain_breaks(uuid)",
        "explain_break(uuid, text, numeric)",
        "open_breaks(uuid)",
        "open_breaks_of_lines(uuid)",
        "duplicate_lines(uuid)",
        "match_again(uuid)",
        "rematch_network_files()",
        "refuse_network_file(text, integer, text, text)",
        "find_break(uuid)",
        "work_on_break(uuid, text, text)",
        "close_break(uuid, text, text)",
    ),
    "0078": ("make_event_of_break(uuid, text)",),
    "0086": ("uma_receiver(text)",),
    "0094": ("add_events(text, text)",),
    "0097": ("duplicate_fees(uuid)", "rounded_half_even(numeric)", "book_network_file(uuid)"),
    "0103": (
        "begin_bank_statement(uuid, text, text, text, date, date, bigint, bigint)",
        f"add_bank_lines(uuid{', text' * 6})",
        "finish_bank_statement(uuid, text)",
        "expected_at_bank(uuid, text)",
        "is_named(text, text)",
        "match_bank(uuid, text)",
        "runs_named(text)",
        "pay_days(text, uuid, integer, bigint, integer, integer, text)",
        "book_bank_line(uuid, integer)",
        "pay_rests(text)",
        "open_bank_breaks(uuid, text)",
        "prove_statements(uuid, text)",
        "rematch_bank()",
    ),
    "0106": (
        "match_files(uuid[])",
        "waiting_files(uuid, boolean)",
        "match_network_file(uuid, boolean, integer)",
        "prove_file(uuid, boolean)",
        "find_events(uuid, text)",
        "match_equal(uuid, boolean)",
        "match_references(uuid, text, boolean)",
        "match_tokens(uuid, text, boolean)",
        "find_card_events(uuid, text)",
        "find_causes(uuid)",
        "open_breaks_of_matches(uuid)",
    ),
    "0108": ("entries_sha256(date, date)",),
    "0110": (
        "find_invitation(text)",
        "claim_invitation(text, text, timestamp with time zone, uuid, json)",
    ),
    "0128": ("repeats_lines(uuid, uuid)", "statement_of_namesake(uuid)"),
    "0129": (
        "add_runs(integer, integer)",
        "lend_days(uuid, integer, boolean)",
        "release_days(uuid, integer)",
    ),
    "0130": (
        "check_bank_move(uuid, uuid, uuid, text, text, text, bigint)",
        "reversed_move(uuid)",
        "moved_of_break(uuid)",
    ),
    "0132": ("bank_findings(date)",),
    "0142": ("delete_expired_credentials(integer)",),
    "0143": ("delete_document_pieces()",),
}
"""Functions by the revision that created them, without those of triggers."""


def at(revision: str) -> list[str]:
    """Return the names of all relations of an installation at `revision`."""
    return [
        name for created_in, names in CREATED.items() if created_in <= revision for name in names
    ]


def functions_at(revision: str) -> list[str]:
    """Return all functions of an installation at `revision` but those of triggers."""
    return [
        name for created_in, names in FUNCTIONS.items() if created_in <= revision for name in names
    ]

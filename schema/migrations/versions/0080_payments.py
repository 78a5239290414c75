"""Payments: transfers to and from the outside, to other owners, and between two currencies."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0080"
down_revision = "0079"

_COLUMNS: Final = {
    "kind": (
        "TEXT DEFAULT 'INTERNAL' NOT NULL",
        (
            "INTERNAL or EXCHANGE: between two accounts of the owner in one or two currencies; OUT:"
            " to another owner or outside; IN: pulled from an external account; RECEIVED: from"
            " another owner or outside; FEE: of a payment, for the platform."
        ),
    ),
    "sequence": (
        "INTEGER DEFAULT 0 NOT NULL",
        "Number of its events (`transfer_events`); an INTERNAL transfer has none.",
    ),
    "requested_at": (
        "TIMESTAMP WITH TIME ZONE",
        "When its message was sent to the engine; null: not yet, or it is INTERNAL.",
    ),
    "account_ending": (
        "TEXT",
        "End of the identifier of the external account, at most four characters.",
    ),
    "peer_id": (
        "UUID",
        "Owner on the other side in this installation: a customer, or a platform by its id.",
    ),
    "peer_platform_id": ("UUID", "Platform of that owner."),
    "origin_id": ("UUID", "The payment of the other owner that caused it."),
    "payment_rail": ("TEXT", "Payment rail; null: none was chosen."),
    "rail_selection": ("TEXT", "AUTO or MANUAL; null: there is no rail."),
    "fee_amount": (
        "BIGINT DEFAULT 0 NOT NULL",
        "Part of the amount that is the fee of the platform, minor units.",
    ),
    "received_amount": (
        "BIGINT",
        "What arrives, minor units of `received_currency`; null: the amount less the fee.",
    ),
    "received_currency": ("TEXT", "Currency that arrives; null: it is not converted."),
    "rate_numerator": (
        "BIGINT",
        "Minor units that are received for `rate_denominator` that are sent.",
    ),
    "rate_denominator": ("BIGINT", "Denominator of the rate."),
    "locked_side": (
        "TEXT",
        "SENDING or RECEIVING: the amount that was chosen; the other one is computed by the rate.",
    ),
    "quote_id": ("UUID", "The quote; null: none."),
    "description": ("TEXT", "Description by the sender."),
    "uma_address": ("TEXT", "UMA address of the other side."),
    "own_uma_address": ("TEXT", "UMA address of the owner."),
    "requested_fields": ("JSON", "Names of the receiver''s fields that the sender asks for."),
    "rejection_reason": ("TEXT", "Why the platform rejected it, in its words."),
    "counterparty_information": ("JSON", "What is known of the other side; an object."),
    "external_reference": ("TEXT", "Reference at the rail, or at the sender."),
    "is_funded": (
        "BOOLEAN DEFAULT false NOT NULL",
        "Whether the amount arrives from outside when it is debited.",
    ),
    "needs_approval": (
        "BOOLEAN DEFAULT false NOT NULL",
        "Whether the platform has to approve a payment that arrives.",
    ),
    "expected_settlement_at": (
        "TIMESTAMP WITH TIME ZONE",
        "When the rail is expected to settle.",
    ),
    "due_at": (
        "TIMESTAMP WITH TIME ZONE",
        "When the next step is due; null: none is due by itself.",
    ),
    "refund_reference": ("TEXT", "Reference of the refund; null: none."),
    "refund_status": ("TEXT", "PENDING, COMPLETED or FAILED; null: no refund."),
    "refund_initiated_at": ("TIMESTAMP WITH TIME ZONE", "When the refund began."),
    "refund_settled_at": ("TIMESTAMP WITH TIME ZONE", "When the refund was booked."),
    "refund_reason": ("TEXT", "TRANSACTION_FAILED, USER_CANCELLATION or TIMEOUT."),
    "receipt_confirmed_at": (
        "TIMESTAMP WITH TIME ZONE",
        "When the platform confirmed the delivery.",
    ),
}
"""Of `transfers`, which the previous release reads and writes without them."""

_CHECKS: Final = {
    "status": ("status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'EXPIRED', 'REJECTED')"),
    "kind": (
        "CASE kind WHEN 'INTERNAL' THEN num_nulls(source_account_id, destination_account_id,"
        " received_amount, received_currency) = 2 AND fee_amount = 0 AND sequence = 0"
        " WHEN 'EXCHANGE' THEN num_nulls(source_account_id, destination_account_id,"
        " received_currency) = 0"
        " WHEN 'OUT' THEN source_account_id IS NOT NULL"
        " WHEN 'IN' THEN num_nulls(source_account_id, destination_account_id) = 0"
        " WHEN 'RECEIVED' THEN destination_account_id IS NOT NULL"
        " WHEN 'FEE' THEN num_nulls(destination_account_id, origin_id) = 0 ELSE false END"
    ),
    "conversion": (
        "num_nulls(received_amount, received_currency, rate_numerator, rate_denominator,"
        " locked_side) IN (0, 5) AND received_amount > 0 IS NOT FALSE"
        " AND received_currency <> currency IS NOT FALSE"
        " AND least(rate_numerator, rate_denominator) > 0 IS NOT FALSE"
        " AND locked_side IN ('SENDING', 'RECEIVING') IS NOT FALSE"
    ),
    "fee": "fee_amount >= 0 AND fee_amount < amount",
    "peer": "num_nulls(peer_id, peer_platform_id) IN (0, 2)",
    "refund": (
        "num_nulls(refund_reference, refund_status, refund_initiated_at, refund_reason) IN (0, 4)"
        " AND refund_status IN ('PENDING', 'COMPLETED', 'FAILED') IS NOT FALSE"
        " AND ((refund_status = 'COMPLETED') IS TRUE) = (refund_settled_at IS NOT NULL)"
    ),
}
"""Not of the rows that were there: revision 0082 checks those."""

_OTHER_COMMENTS: Final = {
    "customer_id": "Its owner: a customer, or a platform by its own id.",
    "source_account_id": ("Debit account; external of IN; null: the payment arrives from outside."),
    "destination_account_id": (
        "Credit account; external or of another owner of OUT; null: a UMA address outside."
    ),
    "amount": "All that the source pays, minor units; always positive.",
    "currency": "Currency of the amount.",
    "status": (
        "PENDING, PROCESSING, COMPLETED, FAILED, EXPIRED or REJECTED; only a payment that is"
        " returned goes from COMPLETED to FAILED."
    ),
}
_TABLE_COMMENT: Final = (
    "Transfers between accounts, and payments to and from the outside; the API requests them,"
    " batches of the engine carry them out."
)
_FORMER_COMMENTS: Final = {
    "customer_id": "Owner of both accounts.",
    "source_account_id": "Debit account.",
    "destination_account_id": "Credit account.",
    "amount": "Amount, minor units; always positive.",
    "currency": "Currency of both accounts.",
    "status": "PENDING (approval), PROCESSING, COMPLETED or FAILED; in this order only.",
}
_FORMER_TABLE_COMMENT: Final = (
    "Transfers between two accounts of one customer; completed by the batch that books the entries."
)

# Which status may follow which; what else changes is a matter of rights on columns.
_GUARD: Final = """
DROP TRIGGER only_forward ON transfers;
CREATE TRIGGER only_forward BEFORE UPDATE ON transfers FOR EACH ROW
    WHEN (NEW.kind <> OLD.kind OR NOT CASE WHEN OLD.kind = 'INTERNAL'
        THEN (OLD.status, NEW.status) IN (('PENDING', 'PROCESSING'), ('PENDING', 'FAILED'),
            ('PROCESSING', 'COMPLETED'), ('PROCESSING', 'FAILED'))
            OR (OLD.status, OLD.settled_at, OLD.updated_at)
                IS NOT DISTINCT FROM (NEW.status, NEW.settled_at, NEW.updated_at)
        ELSE OLD.status = NEW.status
            OR (OLD.status = 'PENDING' AND NEW.status <> 'PENDING')
            OR (OLD.status, NEW.status) IN (('PROCESSING', 'COMPLETED'), ('PROCESSING', 'FAILED'),
                ('COMPLETED', 'FAILED')) END)
    EXECUTE FUNCTION refuse_way_back();
ALTER TABLE transfers ENABLE ALWAYS TRIGGER only_forward;
"""
_FORMER_GUARD: Final = """
DROP TRIGGER only_forward ON transfers;
CREATE TRIGGER only_forward BEFORE UPDATE ON transfers FOR EACH ROW
    WHEN ((OLD.status, NEW.status) NOT IN (('PENDING', 'PROCESSING'), ('PENDING', 'FAILED'),
        ('PROCESSING', 'COMPLETED'), ('PROCESSING', 'FAILED')))
    EXECUTE FUNCTION refuse_way_back();
ALTER TABLE transfers ENABLE ALWAYS TRIGGER only_forward;
"""

# What is requested: the engine alone says what has become of it.
_REQUESTED: Final = (
    "kind, requested_at, account_ending, peer_id, peer_platform_id, payment_rail, rail_selection,"
    " fee_amount, received_amount, received_currency, rate_numerator, rate_denominator,"
    " locked_side, quote_id, description, uma_address, own_uma_address,"
    " counterparty_information, external_reference, is_funded, needs_approval,"
    " expected_settlement_at"
)
_RESULT: Final = (
    "sequence, due_at, rejection_reason, refund_reference, refund_status, refund_initiated_at,"
    " refund_settled_at, refund_reason"
)
_RIGHTS: Final = f"""
DO $$ DECLARE
    views_in text := current_schema() || '_api';
    api text := current_database() || '_api';
    app text := current_database() || '_app';
    worker text := current_database() || '_worker';
    place text;
BEGIN
    FOREACH place IN ARRAY ARRAY[current_schema()::text, views_in] LOOP
        EXECUTE format('GRANT UPDATE (requested_at, receipt_confirmed_at) ON %I.transfers TO %I',
            place, app);
    END LOOP;
    EXECUTE format('GRANT INSERT ({_REQUESTED}) ON %I.transfers TO %I', views_in, api);
    EXECUTE format('GRANT UPDATE (requested_at, receipt_confirmed_at) ON %I.transfers TO %I',
        views_in, api);
    EXECUTE format('GRANT INSERT ON transfers TO %I', worker);
    EXECUTE format('GRANT UPDATE ({_RESULT}) ON transfers TO %I, %I', worker, app);
END $$
"""
_TAKE_BACK: Final = """
DO $$ DECLARE worker text := current_database() || '_worker';
BEGIN
    IF to_regrole(quote_ident(worker)) IS NOT NULL THEN
        EXECUTE format('REVOKE INSERT ON transfers FROM %I', worker);
    END IF;
END $$
"""

_NONE_HAS_MOVED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM transfers WHERE kind <> 'INTERNAL' AND sequence > 0) THEN
        RAISE EXCEPTION 'payments have moved money: their entries stay, so do they';
    END IF;
    DELETE FROM agent_actions a USING transfers t
    WHERE t.id = a.id AND t.customer_id = a.customer_id AND t.kind <> 'INTERNAL';
    DELETE FROM transfers WHERE kind <> 'INTERNAL';
END $$
"""


def upgrade() -> None:
    """Add the columns; the previous release sees only transfers of its own kind."""
    added = ", ".join(f"ADD COLUMN {name} {kind}" for name, (kind, _) in _COLUMNS.items())
    checks = ", ".join(
        f"ADD CONSTRAINT transfers_{name}_check CHECK ({check}) NOT VALID"
        for name, check in _CHECKS.items()
    )
    add_to_table_and_view(
        "transfers",
        f"{added}, DROP CONSTRAINT transfers_status_check, {checks},"
        " ALTER COLUMN source_account_id DROP NOT NULL,"
        " ALTER COLUMN destination_account_id DROP NOT NULL",
    )
    _comment(_TABLE_COMMENT, {name: text for name, (_, text) in _COLUMNS.items()} | _OTHER_COMMENTS)
    op.execute(_GUARD)
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them, and requests of payments; refused once a payment has moved money.

    Both accounts may stay null, which no transfer of the previous release is.
    """
    op.execute(_NONE_HAS_MOVED)
    op.execute(_FORMER_GUARD)
    op.execute(_TAKE_BACK)
    dropped = ", ".join(f"DROP COLUMN {name}" for name in _COLUMNS)
    checks = ", ".join(f"DROP CONSTRAINT transfers_{name}_check" for name in _CHECKS)
    change_table_below_view(
        "transfers",
        f"{checks}, {dropped}, ADD CONSTRAINT transfers_status_check"
        " CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')) NOT VALID",
    )
    _comment(_FORMER_TABLE_COMMENT, _FORMER_COMMENTS)


def _comment(table: str, columns: dict[str, str]) -> None:
    op.execute(f"COMMENT ON TABLE transfers IS '{table}'")
    for name, text in columns.items():
        op.execute(f"COMMENT ON COLUMN transfers.{name} IS '{text}'")

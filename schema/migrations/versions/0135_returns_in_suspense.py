"""What a bank returns to a customer who was deleted may stand in SUSPENSE, without a card."""

from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0135"
down_revision = "0134"

_CAUSES: Final = "'REJECTED', 'PARKED'"
_TYPES: Final = (
    "'CLEARING', 'CLEARING_REVERSAL', 'RETURN', 'RETURN_REVERSAL', 'FINANCIAL_CREDIT_AUTHORIZATION'"
)
_COMMENTS: Final = {
    "id": (
        "The message (`rejections.id`, `parked.id`); `entries.subject_id` of what was booked.",
        (
            "The message (`rejections.id`, `parked.id`, or that of a return);"
            " `entries.subject_id` of what was booked."
        ),
    ),
    "customer_id": (
        "The cardholder.",
        "The cardholder, or the customer whose payout was returned.",
    ),
    "platform_id": ("The platform of the card.", "The platform of the card or the payout."),
    "card_id": ("The card.", "The card; null: a payout that was returned."),
    "type": (
        (
            "Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or"
            " FINANCIAL_CREDIT_AUTHORIZATION."
        ),
        (
            "Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or"
            " FINANCIAL_CREDIT_AUTHORIZATION; or PAYOUT_RETURN: a payout was returned."
        ),
    ),
    "currency": (
        "Currency of the card, in which it is booked.",
        "Currency of the card, or of what was returned, in which it is booked.",
    ),
    "cause": ("REJECTED or PARKED.", "REJECTED, PARKED or CLOSED: the account is."),
    "reason": (
        "Rejection code; null: it is parked.",
        "Rejection code; null: it is parked, or the account is closed.",
    ),
    "resolved_at": (
        "When it was taken back; null: it is open.",
        "When it was taken back, or left the ledger (CLOSED); null: it is open.",
    ),
}
_TABLE: Final = (
    (
        "Movements of the network that were rejected or parked: what SUSPENSE consists of. A row is"
        " only ever resolved, once."
    ),
    (
        "What SUSPENSE consists of: movements of the network that were rejected or parked, and"
        " payouts that were returned to a closed account. A row is only ever resolved, once."
    ),
)

_VIEW: Final = (
    (
        "Items of SUSPENSE: movements of the network that were rejected or parked, also those that"
        " are resolved; the sum of open_amount is the balance of SUSPENSE."
    ),
    (
        "Items of SUSPENSE: movements of the network that were rejected or parked, and payouts that"
        " were returned to a closed account, also those that are resolved; the sum of open_amount"
        " is the balance of SUSPENSE."
    ),
)
_OF_VIEW: Final = {
    "customer_id": (
        "The cardholder.",
        "The cardholder, or the customer whose payout was returned.",
    ),
    "card_id": ("The card.", "The card; null: a payout that was returned."),
    "type": ("Type of the event.", "Type of the event; PAYOUT_RETURN: a payout that was returned."),
    "currency": (
        "Currency of the card, in which it is booked.",
        "Currency of the card, or of what was returned, in which it is booked.",
    ),
    "amount": (
        "What the network moved, minor units of the currency; always positive.",
        (
            "What the network moved, or the bank returned, minor units of the currency; always"
            " positive."
        ),
    ),
    "open_amount": (
        (
            "Its part of the balance of SUSPENSE, on the credit side, minor units: positive: due to"
            " the cardholder; negative: due from the cardholder; 0: resolved."
        ),
        (
            "Its part of the balance of SUSPENSE, on the credit side, minor units: positive: due to"
            " the customer; negative: due from the customer; 0: resolved."
        ),
    ),
    "cause": ("REJECTED or PARKED.", "REJECTED, PARKED or CLOSED: the account is."),
    "reason": (
        "Why it was rejected; null: it is parked.",
        "Why it was rejected; null: it is parked, or the account is closed.",
    ),
    "resolved_at": (
        "When it was taken back; null: it is open.",
        "When it was taken back, or left the ledger (CLOSED); null: it is open.",
    ),
}

_REFUSE: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM suspense_items WHERE cause = 'CLOSED') THEN
        RAISE EXCEPTION 'a payout that was returned stands in SUSPENSE, which the release before'
            ' does not know';
    END IF;
END $$
"""


def upgrade() -> None:
    """Allow them; a worker of the release before makes none."""
    _allow(
        "ALTER COLUMN card_id DROP NOT NULL",
        f"{_CAUSES}, 'CLOSED'",
        f"{_TYPES}, 'PAYOUT_RETURN'",
        (
            "ADD CONSTRAINT suspense_items_card_check CHECK ((card_id IS NULL) = (cause = 'CLOSED')"
            " AND (type = 'PAYOUT_RETURN') = (cause = 'CLOSED')) NOT VALID"
        ),
    )
    _comment(1)


def downgrade() -> None:
    """Allow them no more, unless there is one."""
    op.execute(_REFUSE)
    _allow(
        "ALTER COLUMN card_id SET NOT NULL",
        _CAUSES,
        _TYPES,
        "DROP CONSTRAINT suspense_items_card_check",
    )
    _comment(0)


def _allow(card: str, causes: str, types: str, of_card: str) -> None:
    op.execute(
        f"ALTER TABLE suspense_items {card},"
        " DROP CONSTRAINT suspense_items_cause_check, DROP CONSTRAINT suspense_items_type_check,"
        f" ADD CONSTRAINT suspense_items_cause_check CHECK (cause IN ({causes})) NOT VALID,"
        f" ADD CONSTRAINT suspense_items_type_check CHECK (type IN ({types})) NOT VALID, {of_card}"
    )


def _comment(which: int) -> None:
    op.execute(f"COMMENT ON TABLE suspense_items IS '{_TABLE[which]}'")
    for column, comments in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN suspense_items.{column} IS '{comments[which]}'")
    finance.run(f"COMMENT ON VIEW finance.suspense IS '{_VIEW[which]}'")
    for column, comments in _OF_VIEW.items():
        finance.run(f"COMMENT ON COLUMN finance.suspense.{column} IS '{comments[which]}'")

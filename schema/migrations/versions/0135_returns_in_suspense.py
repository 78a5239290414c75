"""What a bank returns to a customer who was deleted may stand in SUSPENSE, without a card."""

from typing import Final

from alembic import op

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
    "card_id": ("The card.", "The card; null: a payout that was returned."),
    "type": (
        (
            "Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or"
            " FINANCIAL_CREDIT_AUTHORIZATION."
        ),
        (
            "Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or"
            " FINANCIAL_CREDIT_AUTHORIZATION; or PAYOUT_RETURN."
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
    for column, comments in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN suspense_items.{column} IS '{comments[which]}'")

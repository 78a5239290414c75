"""Finance does not see what was rejected of a sender that accepts it: it has moved nothing."""

from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0154"
down_revision = "0153"

_VIEW: Final = Path(__file__).with_suffix(".sql")
_ADDED: Final = """
    AND (w.state = 'PARKED' OR w.suspense_id IS NOT NULL OR w.body ->> 'expectedSequence' IS NULL);
"""
_COMMENT: Final = (
    "COMMENT ON VIEW finance.unapplied IS 'Messages of the network that moved money and were not"
    " applied: rejected, or parked until the event comes that they reverse. Not"
    " FINANCIAL_AUTHORIZATION: the network is told that it is refused, so nothing has moved.{}'"
)
_OF_SENDERS: Final = (
    " Nor what was rejected of a sender that gave expectedSequence and so accepts it, unless an"
    " earlier release has booked it."
)


def upgrade() -> None:
    """Leave rejections with `expectedSequence` out that have no item of suspense."""
    finance.run(_view() + _COMMENT.format(_OF_SENDERS))


def downgrade() -> None:
    """List them again."""
    before = _view()
    assert before.endswith(_ADDED)
    finance.run(before.removesuffix(_ADDED) + ";\n" + _COMMENT.format(""))


def _view() -> str:
    return _VIEW.read_text(encoding="utf-8")

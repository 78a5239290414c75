"""Finance sees what an error of the ledger has rejected, of every sender."""

import importlib
from typing import Final

from cardledger.schema.migrations import finance

revision = "0157"
down_revision = "0156"

_BEFORE: Final = vars(
    importlib.import_module("cardledger.schema.migrations.versions.0154_accepted_rejections")
)
_WITHOUT_FIELD: Final = "w.body ->> 'expectedSequence' IS NULL);"
_OR_BY_ERROR: Final = (
    "w.body ->> 'expectedSequence' IS NULL\n        OR w.reason = 'INTERNAL_ERROR');"
)
_OF_ERRORS: Final = " INTERNAL_ERROR is an error of the ledger, and is listed of every sender."


def upgrade() -> None:
    """List what was rejected for INTERNAL_ERROR, whether its sender accepts rejections or not."""
    before = _view()
    assert before.count(_WITHOUT_FIELD) == 1
    finance.run(before.replace(_WITHOUT_FIELD, _OR_BY_ERROR) + _comment(_OF_ERRORS))


def downgrade() -> None:
    """List it where its sender does not accept rejections."""
    finance.run(_view() + _comment(""))


def _view() -> str:
    view: str = _BEFORE["_view"]()
    return view


def _comment(more: str) -> str:
    comment: str = _BEFORE["_COMMENT"].format(_BEFORE["_OF_SENDERS"] + more)
    return comment

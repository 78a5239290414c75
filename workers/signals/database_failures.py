"""Failures of the database, in the log: one line for an outage, one for each other cause."""

from typing import Final

from cardledger.ledger.storage.engines import is_refusal
from cardledger.workers.signals.outage_log import DATABASE
from cardledger.workers.signals.repeated_warning import RepeatedFailure

_REFUSED: Final = RepeatedFailure("PostgreSQL refuses a statement; it is tried again")


def note(error: Exception) -> None:
    """Take note of a failure of PostgreSQL, whatever the reason, in an attempt that is repeated.

    Where it answers and refuses the statement, because of a missing right or a changed table, that
    is no outage: other statements succeed, and would end it after two seconds.
    """
    if is_refusal(error):
        _REFUSED.note(error)
    else:
        DATABASE.failed(error)

"""Keeps the trial balances that pages show, one worker of an installation at a time.

Source: docs/decisions/0090-trial-balance-snapshots.md
"""

from typing import Final

from psycopg import errors
from sqlalchemy import Engine as Database
from sqlalchemy.exc import OperationalError

from cardledger.ledger.books import trial_balances
from cardledger.ledger.storage.engines import driver
from cardledger.workers.signals.periodic_task import PeriodicTask

_EVERY_S: Final = 5.0


class TrialBalances:
    """Computes the trial balances again, in a short database transaction each time."""

    def __init__(self, database: Database) -> None:
        """Work over connections of `database`; `task` is to be started and stopped."""
        self._database: Final = database.execution_options(isolation_level="REPEATABLE READ")
        self.task: Final = PeriodicTask("trial balances", self.advance, every_s=_EVERY_S)

    def advance(self) -> bool:
        """Do what is next; return whether there may be more."""
        try:
            with self._database.begin() as connection:
                return trial_balances.advance(driver(connection))
        except (errors.SerializationFailure, OperationalError) as error:
            if not isinstance(getattr(error, "orig", error), errors.SerializationFailure):
                raise
            return False  # Another worker has just done it.

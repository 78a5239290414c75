"""What the overview shows of a platform at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cardledger.api.console.rates import Rates
from cardledger.api.health.readiness import Answer
from cardledger.ledger.queries.console.platform_figures import PlatformFigures
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The figures of a platform, and the state of the installation, at a time."""

    at: datetime
    readiness: Answer
    figures: PlatformFigures
    rates: Rates
    latest: Sequence[CardTransactionResource]

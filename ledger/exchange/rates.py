"""Rates between currencies: of a platform, of the installation, and of a connected source.

The market rate of a pair comes from the first of these that has one: what the platform has set for
the pair, the newest rate of the installation for the pair, and the way over US dollars, each half
of which is found likewise and in the end from the connected source. A rate in one direction is
also the rate in the other, inverted. A customer pays the market rate and the spread; a rate that
the platform has set is used as it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, NamedTuple, Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments.conversion import BASIS_POINTS, SAME, Rate, RateOutOfRangeError
from cardledger.ledger.ports import ReferenceRates
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CURRENCIES

VALIDITY: Final = timedelta(minutes=5)
"""How long a rate that was read may be used: the life of a quote, and of a cached response."""

PIVOT: Final = "USD"
"""The currency over which two others are converted that have no rate of their own."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Pair(NamedTuple):
    """Two currencies: what is sent and what is received."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """How an installation prices conversions.

    `reference` is its connected source of rates, `spread_bps` what it adds to the market rate;
    `with_own`: platforms have rates of their own, in a sandbox.
    """

    reference: ReferenceRates | None
    spread_bps: int
    with_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketRate:
    """Major units of the destination for one of the source, exactly.

    `is_own`: the platform has set it, so that no spread is added.
    """

    value: Fraction
    updated_at: datetime
    is_own: bool = False

    def inverse(self) -> Self:
        """Return the rate in the other direction."""
        return type(self)(value=1 / self.value, updated_at=self.updated_at, is_own=self.is_own)


class Rates:
    """The rates that a platform has at a moment; look-ups read nothing."""

    def __init__(
        self,
        *,
        own: dict[Pair, MarketRate],
        installation: dict[Pair, MarketRate],
        pricing: Pricing,
        at: datetime,
    ) -> None:
        self._stored: Final = (own, installation)
        self._pricing: Final = pricing
        self._refreshed_at: Final = window_start(at)

    @property
    def record(self) -> object:
        """What the rates are made of: equal while none has changed or was refreshed."""
        return self._stored, self._refreshed_at

    def market(self, source: str, destination: str) -> MarketRate | None:
        """Return the market rate; None: no source has one."""
        for stored in self._stored:
            if direct := stored.get(Pair(source, destination)):
                return direct
        if source == PIVOT:
            return self._referenced(destination)
        if destination == PIVOT:
            half = self._referenced(source)
            return half and half.inverse()
        first, second = self.market(PIVOT, source), self.market(PIVOT, destination)
        if first is None or second is None:
            return None
        updated_at = min(first.updated_at, second.updated_at)
        return MarketRate(value=second.value / first.value, updated_at=updated_at)

    def rate(self, source: str, destination: str) -> Rate | None:
        """Return the rate at which `source` is converted; None: there is none, or no usable one."""
        if source == destination:
            return SAME
        found = self.market(source, destination)
        if found is None or {source, destination} - CURRENCIES.keys():
            return None
        spread_bps = 0 if found.is_own else self._pricing.spread_bps
        spread = Fraction(BASIS_POINTS + spread_bps, BASIS_POINTS)
        try:
            return Rate.at(spread * in_minor_units(1 / found.value, source, destination))
        except RateOutOfRangeError:
            return None

    def updated_at(self, source: str, destination: str) -> datetime:
        """Return when the rate was last refreshed."""
        found = self.market(source, destination)
        return self._refreshed_at if found is None else max(self._refreshed_at, found.updated_at)

    def _referenced(self, currency: str) -> MarketRate | None:
        reference = self._pricing.reference
        value = None if reference is None else reference.per_dollar(currency)
        if value is None:
            return None
        return MarketRate(value=value, updated_at=self._refreshed_at)


def window_start(at: datetime) -> datetime:
    """Return the beginning of the five minutes that `at` is in: when rates were refreshed."""
    return at - (at - _EPOCH) % VALIDITY


def in_minor_units(price: Fraction, source: str, destination: str) -> Fraction:
    """Return a price of major units in minor units: both are source units for a destination's."""
    decimals = CURRENCIES[source].decimals - CURRENCIES[destination].decimals
    return price * Fraction(10) ** decimals


# --- the record --------------------------------------------------------------------------------

_NEWEST: Final = text(
    """
    WITH pair AS (
        SELECT * FROM unnest(CAST(:sources AS text[]), CAST(:destinations AS text[]))
            AS k (source, destination)
    )
    SELECT true AS is_own, pair.source, pair.destination, r.*
    FROM pair CROSS JOIN LATERAL (
        SELECT id, numerator, denominator, recorded_at FROM platform_exchange_rates p
        WHERE :with_own AND p.platform_id = :platform_id AND p.source_currency = pair.source
            AND p.destination_currency = pair.destination
        ORDER BY id DESC LIMIT 1
    ) r
    UNION ALL
    SELECT false, pair.source, pair.destination, r.*
    FROM pair CROSS JOIN LATERAL (
        SELECT id, numerator, denominator, recorded_at FROM exchange_rates e
        WHERE e.source_currency = pair.source AND e.destination_currency = pair.destination
        ORDER BY id DESC LIMIT 1
    ) r
    ORDER BY id
    """
)


async def read(
    connection: AsyncConnection,
    pairs: Iterable[Pair],
    *,
    platform_id: Id,
    pricing: Pricing,
    at: datetime,
) -> Rates:
    """Return the rates of the platform for `pairs`, in one round trip."""
    looked_up = sorted(_with_halves(pairs))
    rows = await connection.execute(
        _NEWEST,
        {
            "sources": [pair.source for pair in looked_up],
            "destinations": [pair.destination for pair in looked_up],
            "platform_id": platform_id,
            "with_own": pricing.with_own,
        },
    )
    own: dict[Pair, MarketRate] = {}
    installation: dict[Pair, MarketRate] = {}
    for row in rows:  # In order of time: a newer rate of the other direction replaces this one.
        found = MarketRate(
            value=Fraction(int(row.numerator), int(row.denominator)),
            updated_at=row.recorded_at,
            is_own=row.is_own,
        )
        stored = own if row.is_own else installation
        stored[Pair(row.source, row.destination)] = found
        stored[Pair(row.destination, row.source)] = found.inverse()
    return Rates(own=own, installation=installation, pricing=pricing, at=at)


def _with_halves(pairs: Iterable[Pair]) -> set[Pair]:
    """Return every pair that the rates of `pairs` may be made of, in both directions."""
    wanted: set[Pair] = set()
    for source, destination in pairs:
        halves = (source, destination), (PIVOT, source), (PIVOT, destination)
        for first, second in halves:
            if first != second:
                wanted |= {Pair(first, second), Pair(second, first)}
    return wanted


async def set_own(
    connection: AsyncConnection, pair: Pair, price: Fraction, *, platform_id: Id
) -> None:
    """Record a rate of the platform: `price` is minor units sent for one received."""
    decimals = in_minor_units(Fraction(1), *pair)
    value = decimals / price
    await connection.execute(
        tables.platform_exchange_rates.insert().values(
            id=new_id(),
            platform_id=platform_id,
            source_currency=pair.source,
            destination_currency=pair.destination,
            numerator=value.numerator,
            denominator=value.denominator,
        )
    )

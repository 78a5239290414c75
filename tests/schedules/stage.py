"""A stage for a few processes: a new cardholder, and the databases of two workers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Engine as Database

from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message, Owner
from cardledger.schema.ids import Id
from tests.schedules.actors import Act, Draining, accept, accepting, sweeping
from tests.schedules.books import books_of
from tests.schedules.driver import Actor, Choice, Driver, Faults, reconnect
from tests.schedules.scenario import MakeMessage
from tests.world import INBOX_KEY, Cardholder, World

Databases = tuple[Database, Database]


def far_ahead() -> datetime:
    """Return a time at which every authorization has expired."""
    return datetime.now(UTC) + timedelta(days=400)


@dataclass(frozen=True)
class Stage:
    """A cardholder, and the databases of two workers."""

    world: World
    databases: Databases
    cardholder: Cardholder
    is_of_platform: bool = False  # The messages are no cardholder's.

    @property
    def addressee(self) -> Cardholder:
        """Whose queue the messages wait in."""
        if not self.is_of_platform:
            return self.cardholder
        owner = Owner(UNROUTED.customer_id, self.cardholder.owner.platform_id)
        return replace(self.cardholder, owner=owner)

    def draining(self, number: int, lane: Lane = Lane.LIVE) -> Draining:
        """A worker, to whose clock every authorization is due."""
        engine = self.world.engine(clock=far_ahead, database=self.databases[number], batch_size=2)
        return Draining(engine, self.addressee, lane)

    def sweeping(self, number: int) -> Act:
        """A sweeper of the same time."""
        return sweeping(self.databases[number], far_ahead())

    def accepting(self, number: int, messages: Sequence[Message]) -> Act:
        """A client that writes `messages` to the inbox."""
        return accepting(self.databases[number], messages)

    def messages(self, makers: Sequence[MakeMessage]) -> list[dict[str, Any]]:
        """Return messages about the cardholder."""
        return [make(self.world, self.cardholder) for make in makers]

    def accept(self, *makers: MakeMessage, lane: Lane = Lane.LIVE) -> list[Message]:
        """Let messages about the cardholder wait to be decided."""
        return accept(self.world, self.addressee, self.messages(makers), lane)

    def accept_messages(self, messages: Sequence[Message]) -> None:
        """Let `messages` wait to be decided."""
        inbox.accept(self.world.connection, messages, INBOX_KEY)

    def books(self) -> dict[str, Any]:
        """Return everything that is recorded about the cardholder, without ids and times."""
        return books_of(self.world, self.cardholder)


class Theatre:
    """Plays what a few processes do at once, each time on a new stage."""

    def __init__(self, world: World, platform: Id, driver: Driver, databases: Databases) -> None:
        self.world: Final = world
        self._platform: Final = platform
        self._driver: Final = driver
        self._databases: Final = databases
        self.swept: Final[list[Decided]] = []  # What was decided at the end of the last play.

    def stage(self, history: Sequence[MakeMessage], balance: int = 50_000) -> Stage:
        """Return a new stage, on which `history` has been decided."""
        cardholder = self.world.cardholder(self._platform)
        stage = Stage(self.world, self._databases, cardholder)
        deposit = self.world.deposit(cardholder, balance)
        accept(self.world, cardholder, [deposit, *stage.messages(history)])
        self.world.drain(self.world.engine())
        return stage

    def play(
        self, acts: Sequence[Act], choose: Choice, faults: Faults | None = None
    ) -> list[Actor]:
        """Play `acts`; `faults` strike the first of them. Afterwards the sweepers run."""
        reconnect(self._databases)
        actors = [
            Actor(f"process {number}", act, {} if number else faults)
            for number, act in enumerate(acts)
        ]
        self._driver.play(actors, choose)
        engine = self.world.engine(clock=far_ahead)
        self.swept[:] = [each for lane in Lane for each in self.world.drain(engine, lane)]
        return actors

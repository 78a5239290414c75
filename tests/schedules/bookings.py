"""Scenarios of what people, files of networks and statements of the bank book.

What no cardholder owns names the cardholder of its stage, so that `books_of` finds it: an
adjustment by its reason, a booking by its file or statement.
"""

from typing import Any, Final

from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging import inbox, settlement_bookings
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.projections import adjustments
from cardledger.schema.ids import Id
from cardledger.schema.roles import Right
from tests.schedules.actors import accept
from tests.schedules.scenario import MakeMessage, Message, Scenario
from tests.world import Cardholder, World

_PREPARED_MOVE: Final = """
    SELECT finance.prepare_move(%s, 'NETWORK_SETTLEMENT', 'SETTLEMENT_BANK', 700, 'USD', %s)
"""
_PREPARED_WRITE_OFF: Final = """
    SELECT finance.prepare_write_off(id, %s, %s) FROM card_transactions WHERE customer_id = %s
"""
_PREPARED_RESOLUTION: Final = """
    SELECT finance.prepare_suspense_resolution(id, %s) FROM suspense_items WHERE customer_id = %s
"""
_BOOKED_OF_A_FILE: Final = """
    INSERT INTO settlement_bookings (platform_id, file_id, network, amount, posted_for, kind,
        currency, from_kind, to_kind)
    VALUES (%s, %s, 'VISA', 70, '2026-03-02', 'INTERCHANGE', 'USD', 'NETWORK_SETTLEMENT',
        'INTERCHANGE')
    RETURNING id
"""
_BOOKED_OF_A_STATEMENT: Final = """
    INSERT INTO settlement_bookings (platform_id, statement_id, line, amount, posted_for, kind,
        currency, from_kind, to_kind)
    VALUES (%s, %s, 1, 700, '2026-03-02', 'BANK_LINE', 'USD', 'NETWORK_SETTLEMENT',
        'SETTLEMENT_BANK')
    RETURNING id
"""


def _adjustment(key: Id, **target: str) -> Message:
    return {
        "type": inbox.ADJUSTMENT,
        "source": adjustments.SOURCE,
        "reference": str(key),
        "adjustmentId": str(key),
        **target,
    }


def _agreed(world: World, prepare: str, *values: Any) -> Id:  # noqa: ANN401 - parameters
    """Return an adjustment that one login has prepared and another one has approved."""
    [(key,)] = world.rows(prepare, *values)
    database = DatabaseUrl(world.worker_url).role.rpartition("_")[0]
    approver = sql.Identifier(f"{database}_{Right.APPROVE}")
    with world.connection.transaction():
        # A person has this right as well; the database is a copy that has no people.
        world.connection.execute(sql.SQL("GRANT USAGE ON SCHEMA finance TO {}").format(approver))
        world.connection.execute(sql.SQL("SET LOCAL SESSION AUTHORIZATION {}").format(approver))
        world.connection.execute("SELECT finance.approve_adjustment(%s)", [key])
    found: Id = key
    return found


def _cleared(world: World, cardholder: Cardholder, clearing: Message) -> None:
    accept(world, cardholder, [clearing])
    world.drain(world.engine())


def _move(world: World, cardholder: Cardholder) -> Message:
    owner = cardholder.owner
    return _adjustment(_agreed(world, _PREPARED_MOVE, owner.platform_id, str(owner.customer_id)))


def _write_off(amount: int) -> MakeMessage:
    """The whole of a clearing is owed: `amount` of it is to be given up."""

    def give_up(world: World, cardholder: Cardholder) -> Message:
        clearing = world.clearing(cardholder, "T1", 1_500, final=True)
        _cleared(world, cardholder, clearing)
        customer_id = cardholder.owner.customer_id
        key = _agreed(world, _PREPARED_WRITE_OFF, amount, str(customer_id), customer_id)
        target = {name: clearing[name] for name in ("cardId", "issuerTransactionToken")}
        return _adjustment(key, **target)

    return give_up


def _resolution(world: World, cardholder: Cardholder) -> Message:
    """What was cleared in another currency stands in suspense, and is taken back."""
    clearing = world.clearing(cardholder, "T1", 1_500, currency="EUR")
    _cleared(world, cardholder, clearing)
    customer_id = cardholder.owner.customer_id
    return _adjustment(_agreed(world, _PREPARED_RESOLUTION, str(customer_id), customer_id))


def _booking(insert: str) -> MakeMessage:
    def book(world: World, cardholder: Cardholder) -> Message:
        owner = cardholder.owner
        [(key,)] = world.rows(insert, owner.platform_id, owner.customer_id)
        return settlement_bookings.body_of(key)

    return book


BOOKINGS: Final = [
    Scenario("move", [_move], lane=Lane.BULK, is_of_platform=True),
    Scenario("write-off", [_write_off(1_000)], balance=100, lane=Lane.BULK),
    Scenario(
        "refused write-off",
        [_write_off(2_000)],
        balance=100,
        outcomes=["DECLINED"],
        lane=Lane.BULK,
    ),
    Scenario("resolved suspense", [_resolution], lane=Lane.BULK),
    Scenario("interchange", [_booking(_BOOKED_OF_A_FILE)], lane=Lane.BULK, is_of_platform=True),
    Scenario(
        "line of the bank", [_booking(_BOOKED_OF_A_STATEMENT)], lane=Lane.BULK, is_of_platform=True
    ),
]

"""Money that the network moved and the ledger could not apply stands in SUSPENSE until it is."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from secrets import token_hex
from typing import Any, Final, NoReturn

import psycopg
import pytest
from psycopg import errors

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit.verification import verify_in_transaction
from cardledger.ledger.books.suspense import money_in
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.engine import rejections as kept
from cardledger.ledger.engine import writes
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.decisions import sources
from cardledger.ledger.engine.decisions import suspense as decisions
from cardledger.ledger.engine.parsing import RejectedError
from cardledger.ledger.engine.records import RejectionRecord
from cardledger.ledger.messaging import inbox, rejections
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Owner
from cardledger.ledger.messaging.rejections import Filter
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.schema.wire.outcomes import RejectionReason
from cardledger.workers.client import parsing
from cardledger.workers.process.mover import Mover
from tests.databases import OwnRoles, as_role
from tests.people_of_finance import open_office
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

DUE: Final = {
    "CLEARING": 1,
    "CLEARING_REVERSAL": -1,
    "RETURN": -1,
    "RETURN_REVERSAL": 1,
    "FINANCIAL_CREDIT_AUTHORIZATION": -1,
}
"""The types of events that have moved money; 1: due to the network."""
PARKED: Final = {"CLEARING_REVERSAL": "CLEARING", "RETURN_REVERSAL": "RETURN"}
"""What is parked, and what it waits for."""
YESTERDAY: Final = datetime.now(UTC) - timedelta(days=1)

Event = Mapping[str, Any]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        made.connection.execute("UPDATE books SET first_open_day = '2026-01-01'")
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def cardholder(world: World, platform: Id) -> Cardholder:
    return world.cardholder(platform, 10_000)


@pytest.fixture(scope="module")
def engine(world: World) -> Engine:
    return world.engine()


def outcomes(world: World, engine: Engine, cardholder: Cardholder, *events: Event) -> list[str]:
    return outcomes_of(world.process(engine, [(cardholder, event) for event in events]))


def items(world: World, cardholder: Cardholder) -> list[tuple[Any, ...]]:
    """Return type, amount, cause and reason of each item, and whether it is open."""
    return world.rows(
        "SELECT type, amount, cause, reason, resolved_at IS NULL FROM suspense_items"
        " WHERE customer_id = %s ORDER BY recorded_at, id",
        cardholder.owner.customer_id,
    )


def system_balances(world: World, cardholder: Cardholder) -> tuple[int, int]:
    """Return what SUSPENSE and NETWORK_SETTLEMENT have of `cardholder`, on the credit side."""
    found = dict(
        world.rows(
            "SELECT s.kind, sum(CASE s.id WHEN e.credit_account_id THEN e.amount"
            " ELSE -e.amount END) FROM entries e JOIN system_accounts s"
            " ON s.id IN (e.debit_account_id, e.credit_account_id)"
            " WHERE e.customer_id = %s GROUP BY s.kind",
            cardholder.owner.customer_id,
        )
    )
    return found.get("SUSPENSE", 0), found.get("NETWORK_SETTLEMENT", 0)


def check(world: World, cardholder: Cardholder) -> None:
    world.check_books(cardholder)
    report = world.verify()
    assert report.holds, report.differences


def unapplied(world: World, cardholder: Cardholder) -> list[tuple[Any, ...]]:
    """Return message, reason and item of what finance sees as not applied of `cardholder`."""
    return world.rows(
        "SELECT u.message_id, u.reason, u.suspense_id FROM finance.unapplied u"
        " LEFT JOIN suspense_items i ON i.id = u.suspense_id"
        " LEFT JOIN rejections r ON r.id = u.message_id"
        " WHERE coalesce(i.customer_id, r.customer_id) = %s ORDER BY u.message_id",
        cardholder.owner.customer_id,
    )


# --- rejected -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DUE)
def test_what_a_rejected_event_has_moved_stands_in_suspense_until_the_corrected_one(
    world: World, engine: Engine, cardholder: Cardholder, kind: str
) -> None:
    outcomes(
        world,
        engine,
        cardholder,
        world.clearing(cardholder, "T1", 900, final=False),
        world.event("RETURN", cardholder, "T1", 800),
    )
    before = system_balances(world, cardholder)
    event = world.event(kind, cardholder, "T1", 700)

    rejected = outcomes(world, engine, cardholder, event | {"currency": "EUR"})
    during = system_balances(world, cardholder)
    open_items = items(world, cardholder)
    check(world, cardholder)
    applied = outcomes(world, engine, cardholder, event)

    assert (rejected, applied) == (["REJECTED"], ["APPLIED"])
    assert open_items == [(kind, 700, "REJECTED", "INVALID_CURRENCY", True)]
    assert during == (before[0] - DUE[kind] * 700, before[1] + DUE[kind] * 700)
    assert items(world, cardholder) == [(kind, 700, "REJECTED", "INVALID_CURRENCY", False)]
    assert system_balances(world, cardholder) == (0, during[1])
    assert unapplied(world, cardholder) == []
    check(world, cardholder)


@pytest.mark.parametrize("kind", DUE)
@pytest.mark.parametrize("given", [(), ("expectedSequence",)])
def test_a_retry_that_is_applied_takes_the_item_back(  # noqa: PLR0913, PLR0917 - fixtures
    world: World,
    engine: Engine,
    cardholder: Cardholder,
    kind: str,
    given: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = [
        world.clearing(cardholder, "T1", 900, final=False),
        world.event("RETURN", cardholder, "T1", 800),
    ]
    outcomes(world, engine, cardholder, *opened)
    fields = dict.fromkeys(given, sequence(world, cardholder))
    event = world.event(kind, cardholder, "T1", 300, **fields)
    with monkeypatch.context() as broken:
        broken.setattr(sources, "check", fail)
        assert outcomes(world, engine, cardholder, event) == ["REJECTED"]
    assert items(world, cardholder) == [(kind, 300, "REJECTED", "INTERNAL_ERROR", True)]
    [(key,)] = world.rows(
        "SELECT id FROM rejections WHERE customer_id = %s", cardholder.owner.customer_id
    )

    is_accepted = retry(world, key)
    waiting = unapplied(world, cardholder)
    decided = world.drain(engine, Lane.BULK)

    assert is_accepted
    assert waiting == [(key, "INTERNAL_ERROR", key)]
    assert outcomes_of(decided) == ["APPLIED"]
    assert items(world, cardholder) == [(kind, 300, "REJECTED", "INTERNAL_ERROR", False)]
    assert world.rows("SELECT resolved_by FROM suspense_items WHERE id = %s", key) == [
        (decided[0].message.id,)
    ]
    assert unapplied(world, cardholder) == []
    check(world, cardholder)


def fail(*_: object) -> NoReturn:
    """Reject a message as what is quarantined is rejected."""
    raise RejectedError(RejectionReason.INTERNAL_ERROR, "until the repair")


@pytest.mark.parametrize("kind", DUE)
def test_what_its_sender_accepts_to_be_rejected_has_moved_nothing(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder, kind: str
) -> None:
    opened = [
        world.clearing(cardholder, "T1", 900, final=False),
        world.event("RETURN", cardholder, "T1", 800),
    ]
    outcomes(world, engine, cardholder, *opened)
    before = system_balances(world, cardholder)
    at = sequence(world, cardholder)
    late = world.event(kind, cardholder, "T1", 300, expectedSequence=at - 1)
    in_euro = world.event(kind, cardholder, "T1", 300, expectedSequence=at, currency="EUR")
    reused = late | {"reference": opened[0]["reference"]}

    rejected = outcomes(world, engine, cardholder, late, late, in_euro, reused)
    keep(world, platform, late | {"reference": "malformed", "final": 7})

    assert rejected == ["REJECTED"] * 4
    assert world.drain(engine, Lane.BULK) == []
    assert items(world, cardholder) == unapplied(world, cardholder) == []
    assert system_balances(world, cardholder) == before
    check(world, cardholder)
    happened = {name: value for name, value in late.items() if name != "expectedSequence"}
    assert outcomes(world, engine, cardholder, happened) == ["APPLIED"]
    check(world, cardholder)


@pytest.mark.parametrize("kind", PARKED)
def test_what_its_sender_accepts_to_be_rejected_stands_in_suspense_while_it_is_parked(
    world: World, engine: Engine, cardholder: Cardholder, kind: str
) -> None:
    event = world.event(kind, cardholder, "T1", 300, expectedSequence=0)

    assert outcomes(world, engine, cardholder, event) == ["PARKED"]

    assert items(world, cardholder) == [(kind, 300, "PARKED", None, True)]
    [(message_id, reason, suspense_id)] = unapplied(world, cardholder)
    assert (message_id, reason) == (suspense_id, None)
    check(world, cardholder)
    awaited = world.event(PARKED[kind], cardholder, "T1", 300)
    assert outcomes(world, engine, cardholder, awaited) == ["APPLIED"]
    assert system_balances(world, cardholder) == (0, 0)
    check(world, cardholder)


def test_items_that_an_earlier_release_booked_of_accepted_rejections_stay(
    world: World, engine: Engine, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = world.clearing(cardholder, "T1", 300, expectedSequence=1)
    with monkeypatch.context() as earlier:
        earlier.setattr(decisions, "money_of_rejected", lambda body, _: money_in(body))
        assert outcomes(world, engine, cardholder, event) == ["REJECTED"]

    assert outcomes(world, engine, cardholder, event) == ["REJECTED"]

    assert items(world, cardholder) == [("CLEARING", 300, "REJECTED", "OUTDATED", True)]
    assert {reason for _, reason, _ in unapplied(world, cardholder)} == {"OUTDATED"}
    check(world, cardholder)
    happened = {name: value for name, value in event.items() if name != "expectedSequence"}
    assert outcomes(world, engine, cardholder, happened) == ["APPLIED"]
    assert unapplied(world, cardholder) == []
    check(world, cardholder)


def sequence(world: World, cardholder: Cardholder) -> int:
    [(number,)] = world.rows(
        "SELECT sequence FROM card_transactions WHERE customer_id = %s",
        cardholder.owner.customer_id,
    )
    return int(number)


def retry(world: World, key: Id) -> bool:
    async def run() -> bool:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            found = await rejections.find(connection, Filter(ids=[key]), limit=1)
            retries = await rejections.retry(connection, found, INBOX_KEY, now=datetime.now(UTC))
            return bool(retries.accepted)

    return asyncio.run(run())


def test_a_sender_that_repeats_a_rejected_clearing_moved_the_money_once(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    wrong = world.clearing(cardholder, "T1", 700, currency="EUR")

    together = outcomes(world, engine, cardholder, wrong, wrong, wrong | {"amount": 800})
    alone = [outcomes(world, engine, cardholder, wrong) for _ in range(2)]

    assert (together, alone) == (["REJECTED"] * 3, [["REJECTED"]] * 2)
    assert items(world, cardholder) == [("CLEARING", 700, "REJECTED", "INVALID_CURRENCY", True)]
    listed = unapplied(world, cardholder)
    assert len(listed) == 5
    assert {suspense_id for _, _, suspense_id in listed} == {listed[0][0]}
    check(world, cardholder)
    assert outcomes(world, engine, cardholder, wrong | {"currency": "USD"}) == ["APPLIED"]
    assert unapplied(world, cardholder) == []
    check(world, cardholder)


def test_a_movement_under_a_used_key_stays_until_a_person_resolves_it(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    first = world.clearing(cardholder, "T1", 700)
    assert outcomes(world, engine, cardholder, first) == ["APPLIED"]

    again = outcomes(
        world,
        engine,
        cardholder,
        first | {"amount": 800},
        first | {"amount": 800},
        first | {"amount": 900},
        first,
    )

    assert again == ["REJECTED", "REJECTED", "REJECTED", "DUPLICATE"]
    assert items(world, cardholder) == [
        ("CLEARING", 800, "REJECTED", "KEY_REUSED", True),
        ("CLEARING", 900, "REJECTED", "KEY_REUSED", True),
    ]
    assert len({suspense_id for _, _, suspense_id in unapplied(world, cardholder)}) == 2
    check(world, cardholder)


def test_a_used_key_and_a_parked_event_are_two_movements(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    reversal = world.event("CLEARING_REVERSAL", cardholder, "T1", 300)
    reused = world.clearing(cardholder, "T2", 100) | {"reference": reversal["reference"]}
    assert outcomes(world, engine, cardholder, reversal, reused) == ["PARKED", "REJECTED"]
    check(world, cardholder)

    outcomes(world, engine, cardholder, world.clearing(cardholder, "T1", 300, final=False))

    assert items(world, cardholder) == [
        ("CLEARING_REVERSAL", 300, "PARKED", None, False),
        ("CLEARING", 100, "REJECTED", "KEY_REUSED", True),
    ]
    check(world, cardholder)


def test_a_clearing_whose_total_would_not_fit_is_in_the_books_all_the_same(
    world: World, engine: Engine
) -> None:
    cardholder = world.cardholder(world.platform(), 10_000)
    large = world.clearing(cardholder, "T1", MAX_AMOUNT)
    assert outcomes(world, engine, cardholder, large) == ["APPLIED"]

    more = [world.clearing(cardholder, "T1", MAX_AMOUNT) for _ in range(2)]

    assert outcomes(world, engine, cardholder, *more) == ["REJECTED", "REJECTED"]
    assert (
        items(world, cardholder)
        == [("CLEARING", MAX_AMOUNT, "REJECTED", "AMOUNT_OUT_OF_RANGE", True)] * 2
    )
    assert system_balances(world, cardholder) == (-2 * MAX_AMOUNT, 3 * MAX_AMOUNT)
    check(world, cardholder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"occurredAt": "yesterday"},
        {"settlement": {"network": "VISA", "settlementDate": "2026-13-01"}},
        {"settlement": "VISA"},
        {"merchant": "shop"},
        {"issuerTransactionToken": 7},
        {"final": "yes"},
    ],
)
def test_what_is_wrong_with_another_field_does_not_keep_money_out_of_the_books(
    world: World, engine: Engine, cardholder: Cardholder, wrong: Event
) -> None:
    event = world.clearing(cardholder, "T1", 700) | dict(wrong)
    key = world.insert_unchecked(cardholder, json.dumps(event), reference=event["reference"])

    assert outcomes_of(world.drain(engine)) == ["REJECTED"]

    assert items(world, cardholder) == [("CLEARING", 700, "REJECTED", "MALFORMED", True)]
    assert unapplied(world, cardholder) == [(key, "MALFORMED", key)]
    check(world, cardholder)
    corrected = world.clearing(cardholder, "T1", 700) | {"reference": event["reference"]}
    assert outcomes(world, engine, cardholder, corrected) == ["APPLIED"]
    assert system_balances(world, cardholder) == (0, 700)
    check(world, cardholder)


def test_a_text_that_json_of_postgresql_cannot_hold_hides_no_money(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    events = [
        world.clearing(cardholder, f"T{n}", 10 + n, merchant={"descriptor": text})
        for n, text in enumerate(["a\0b", "\ud800", "a\\u0000"])
    ]
    texts = [json.dumps(event) for event in events]
    keys = [
        world.insert_unchecked(cardholder, text, reference=event["reference"])
        for text, event in zip(texts, events, strict=True)
    ]

    decided = outcomes_of(world.drain(engine))

    assert decided == ["REJECTED", "REJECTED", "APPLIED"]
    assert unapplied(world, cardholder) == [(key, "MALFORMED", key) for key in keys[:2]]
    check(world, cardholder)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "AUTHORIZATION"},
        {"type": "FINANCIAL_AUTHORIZATION"},
        {"type": "AUTHORIZATION_REVERSAL"},
        {"amount": 0},
        {"amount": "7"},
        {"cardId": f"Card:{new_id()}"},
    ],
)
def test_what_has_moved_no_money_or_cannot_be_read_is_not_booked(
    world: World, engine: Engine, cardholder: Cardholder, event: Event
) -> None:
    wrong = world.clearing(cardholder, "T1", 700, currency="EUR") | dict(event)

    assert outcomes(world, engine, cardholder, wrong) == ["REJECTED"]

    assert items(world, cardholder) == []
    check(world, cardholder)


def test_the_card_of_another_cardholder_is_not_booked(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder
) -> None:
    other = world.cardholder(platform)

    assert outcomes(world, engine, other, world.clearing(cardholder, "T1", 700)) == ["REJECTED"]

    assert items(world, other) == items(world, cardholder) == []
    check(world, cardholder)


def test_an_item_has_the_dates_of_its_message_and_of_what_resolves_it(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    settlement = {"network": "VISA", "settlementDate": str(YESTERDAY.date())}
    event = world.clearing(cardholder, "T1", 700, settlement=settlement)
    earlier = {"network": "VISA", "settlementDate": str((YESTERDAY - timedelta(days=3)).date())}
    outcomes(world, engine, cardholder, event | {"currency": "EUR"})

    outcomes(world, engine, cardholder, event | {"settlement": earlier})

    days = world.rows(
        "SELECT e.sequence, e.posted_on, i.posted_on, i.network, i.settlement_date"
        " FROM entries e JOIN suspense_items i ON i.id = e.subject_id"
        " WHERE e.customer_id = %s ORDER BY e.sequence",
        cardholder.owner.customer_id,
    )
    day: date = YESTERDAY.date()
    assert days == [(0, day, day, "VISA", day), (1, day, day, "VISA", day)]
    check(world, cardholder)


# --- parked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PARKED)
@pytest.mark.parametrize("together", [True, False])
def test_what_a_parked_event_has_moved_stands_in_suspense_until_it_is_applied(
    world: World, engine: Engine, cardholder: Cardholder, kind: str, *, together: bool
) -> None:
    event = world.event(kind, cardholder, "T1", 300)
    awaited = world.event(PARKED[kind], cardholder, "T1", 300)
    if together:
        decided = outcomes(world, engine, cardholder, event, awaited)
    else:
        decided = outcomes(world, engine, cardholder, event)
        assert items(world, cardholder) == [(kind, 300, "PARKED", None, True)]
        assert system_balances(world, cardholder) == (-DUE[kind] * 300, DUE[kind] * 300)
        check(world, cardholder)
        decided += outcomes(world, engine, cardholder, awaited)

    assert decided == ["PARKED", "APPLIED"]
    assert items(world, cardholder) == [(kind, 300, "PARKED", None, False)]
    assert system_balances(world, cardholder) == (0, 0)
    check(world, cardholder)


@pytest.mark.parametrize("kind", PARKED)
def test_a_corrected_event_that_is_parked_replaces_the_rejected_one(
    world: World, engine: Engine, cardholder: Cardholder, kind: str
) -> None:
    event = world.event(kind, cardholder, "T1", 300)
    outcomes(world, engine, cardholder, event | {"currency": "EUR", "amount": 400})

    assert outcomes(world, engine, cardholder, event) == ["PARKED"]

    assert items(world, cardholder) == [
        (kind, 400, "REJECTED", "INVALID_CURRENCY", False),
        (kind, 300, "PARKED", None, True),
    ]
    check(world, cardholder)


def test_a_parked_event_whose_total_would_not_fit_stays_in_suspense(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    world.process(engine, [(cardholder, world.deposit(cardholder, MAX_AMOUNT - 20_000))])
    reversal = world.event("RETURN_REVERSAL", cardholder, "T1", 5_000)
    outcomes(world, engine, cardholder, reversal)

    outcomes(world, engine, cardholder, world.event("RETURN", cardholder, "T1", 6_000))

    [(waiting,)] = world.rows(
        "SELECT count(*) FROM parked WHERE customer_id = %s", cardholder.owner.customer_id
    )
    [(_, _, _, _, is_open)] = items(world, cardholder)
    assert bool(waiting) == is_open
    check(world, cardholder)


# --- credits --------------------------------------------------------------------------------------

MEANT: Final = {"CLEARING": "RETURN", "CLEARING_REVERSAL": "RETURN_REVERSAL"}
"""What names no direction, and what it means while a credit is all that is known of its token."""


def credit(world: World, cardholder: Cardholder, amount: int = 900) -> Event:
    """Return the authorization of a credit."""
    return world.event("CREDIT_AUTHORIZATION", cardholder, "T1", amount)


@pytest.mark.parametrize("kind", MEANT)
def test_a_rejected_clearing_of_a_credit_is_due_as_if_it_was_applied(
    world: World, engine: Engine, cardholder: Cardholder, kind: str
) -> None:
    cleared = world.clearing(cardholder, "T1", 800, final=False)
    outcomes(world, engine, cardholder, credit(world, cardholder), cleared)
    before = system_balances(world, cardholder)
    event = world.event(kind, cardholder, "T1", 700)

    rejected = outcomes(world, engine, cardholder, event | {"currency": "EUR"})
    during = system_balances(world, cardholder)
    open_items = items(world, cardholder)
    check(world, cardholder)
    applied = outcomes(world, engine, cardholder, event)

    due = DUE[MEANT[kind]] * 700
    assert (before, rejected, applied) == ((0, -800), ["REJECTED"], ["APPLIED"])
    assert open_items == [(MEANT[kind], 700, "REJECTED", "INVALID_CURRENCY", True)]
    assert during == (-due, -800 + due)
    assert system_balances(world, cardholder) == (0, -800 + due)
    check(world, cardholder)


@pytest.mark.parametrize("together", [True, False])
def test_a_parked_reversal_of_a_credit_is_due_as_if_it_was_applied(
    world: World, engine: Engine, cardholder: Cardholder, *, together: bool
) -> None:
    reversal = world.event("CLEARING_REVERSAL", cardholder, "T1", 300)
    asked = credit(world, cardholder, 300)
    if together:
        outcomes(world, engine, cardholder, asked, reversal)
    else:
        outcomes(world, engine, cardholder, asked)
        outcomes(world, engine, cardholder, reversal)
    waiting = system_balances(world, cardholder), items(world, cardholder)
    check(world, cardholder)

    applied = outcomes(world, engine, cardholder, world.clearing(cardholder, "T1", 300))

    assert waiting == ((-300, 300), [("RETURN_REVERSAL", 300, "PARKED", None, True)])
    assert applied == ["APPLIED"]
    assert items(world, cardholder) == [("RETURN_REVERSAL", 300, "PARKED", None, False)]
    assert system_balances(world, cardholder) == (0, 0)
    check(world, cardholder)


def test_what_was_parked_for_a_credit_is_taken_back_as_it_was_booked(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    reversal = world.event("CLEARING_REVERSAL", cardholder, "T1", 300)
    outcomes(world, engine, cardholder, credit(world, cardholder, 300), reversal)
    # From here on the token is that of a purchase, of which the credit is a refund.
    outcomes(world, engine, cardholder, world.event("AUTHORIZATION", cardholder, "T1", 500))
    check(world, cardholder)

    outcomes(world, engine, cardholder, world.clearing(cardholder, "T1", 500))

    assert items(world, cardholder) == [("RETURN_REVERSAL", 300, "PARKED", None, False)]
    assert system_balances(world, cardholder) == (0, 200)
    check(world, cardholder)


def test_a_clearing_of_a_credit_under_a_used_key_is_booked_once(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    first = world.clearing(cardholder, "T1", 100, final=False)
    again = first | {"amount": 200}
    outcomes(world, engine, cardholder, credit(world, cardholder), first)

    decided = outcomes(world, engine, cardholder, again, again, first | {"amount": 250})
    outcomes(world, engine, cardholder, world.event("AUTHORIZATION", cardholder, "T1", 500))
    decided += outcomes(world, engine, cardholder, again)

    assert decided == ["REJECTED"] * 4
    assert items(world, cardholder) == [
        ("RETURN", 200, "REJECTED", "KEY_REUSED", True),
        ("RETURN", 250, "REJECTED", "KEY_REUSED", True),
    ]
    listed = unapplied(world, cardholder)
    assert len(listed) == 4
    assert {suspense_id for _, _, suspense_id in listed} == {listed[0][0], listed[2][0]}
    assert system_balances(world, cardholder) == (450, -550)
    check(world, cardholder)
    [problem] = without_item(world, cardholder, 250)
    assert "a CLEARING of 250 minor units has no item in suspense" in problem


def test_a_refund_under_a_used_key_is_not_a_clearing_of_it(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    first = world.clearing(cardholder, "T1", 100, final=False)
    refund = first | {"type": "RETURN", "amount": 200}
    del refund["final"]

    outcomes(world, engine, cardholder, first, refund, first | {"amount": 200})

    assert items(world, cardholder) == [
        ("RETURN", 200, "REJECTED", "KEY_REUSED", True),
        ("CLEARING", 200, "REJECTED", "KEY_REUSED", True),
    ]
    check(world, cardholder)
    problems = verified_after(world, *UNGUARDED, removal(cardholder, "type = 'CLEARING'"))
    assert ["a CLEARING of 200 minor units has no item" in each for each in problems] == [True]


def test_items_of_credits_that_an_earlier_release_booked_stay_as_they_are(
    world: World, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = world.engine()
    first = world.clearing(cardholder, "T1", 100, final=False)
    wrong = world.clearing(cardholder, "T1", 150, final=False)
    early = world.event("CLEARING_REVERSAL", cardholder, "T1", 600)
    outcomes(world, engine, cardholder, credit(world, cardholder), first)
    rejected = [first | {"amount": 200}, wrong | {"currency": "EUR"}]
    with monkeypatch.context() as earlier:
        earlier.setattr(decisions, "type_of_credit", str)
        outcomes(world, engine, cardholder, *rejected, early)
    booked = items(world, cardholder)
    check(world, cardholder)

    repeated = outcomes(world, engine, cardholder, *rejected, wrong)
    check(world, cardholder)
    outcomes(world, engine, cardholder, world.clearing(cardholder, "T1", 600, final=False))

    assert {kind for kind, *_ in booked} == {"CLEARING", "CLEARING_REVERSAL"}
    assert repeated == ["REJECTED", "REJECTED", "APPLIED"]
    assert [
        (kind, amount, is_open) for kind, amount, _, _, is_open in items(world, cardholder)
    ] == [(kind, amount, amount == 200) for kind, amount, *_ in booked]
    assert system_balances(world, cardholder) == (-200, -50)
    check(world, cardholder)


@pytest.mark.parametrize("named", [True, False])
def test_a_clearing_of_a_credit_that_the_api_does_not_accept_is_due_as_if_it_was_applied(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder, *, named: bool
) -> None:
    outcomes(world, engine, cardholder, credit(world, cardholder))
    event = world.clearing(cardholder, "T1", 700)
    keep(world, platform, event | {"final": 7} | ({} if named else {"issuerTransactionToken": 7}))

    assert outcomes_of(world.drain(engine, Lane.BULK)) == ["APPLIED"]

    kind = "RETURN" if named else "CLEARING"  # Nothing says that it is of a credit.
    assert items(world, cardholder) == [(kind, 700, "REJECTED", "MALFORMED", True)]
    assert system_balances(world, cardholder) == (-DUE[kind] * 700, DUE[kind] * 700)
    check(world, cardholder)
    assert outcomes(world, engine, cardholder, event) == ["APPLIED"]
    assert system_balances(world, cardholder) == (0, -700)
    check(world, cardholder)


@pytest.mark.parametrize("readable", [True, False])
def test_a_quarantined_clearing_of_a_credit_is_due_as_if_it_was_applied(
    world: World,
    engine: Engine,
    cardholder: Cardholder,
    monkeypatch: pytest.MonkeyPatch,
    *,
    readable: bool,
) -> None:
    outcomes(world, engine, cardholder, credit(world, cardholder))
    endless = token_hex(20_000)
    event = world.clearing(cardholder, "T1", 700) | {"reference": endless}
    world.insert_unchecked(cardholder, json.dumps(event), reference=endless)
    world.accept([(cardholder, world.deposit(cardholder, 7))])
    if not readable:

        def fail(*_: object) -> None:
            raise ValueError("unknown status")

        monkeypatch.setattr(kept, "_card_transactions", fail)

    decided = outcomes_of(world.drain(engine))

    kind = "RETURN" if readable else "CLEARING"  # Better booked so than not at all.
    assert sorted(decided) == ["APPLIED", "REJECTED"]
    assert items(world, cardholder) == [(kind, 700, "REJECTED", "INTERNAL_ERROR", True)]
    check(world, cardholder)


# --- rejected outside of the engine ---------------------------------------------------------------


def keep(world: World, platform_id: Id | None, *bodies: object) -> list[Id]:
    """Keep `bodies` as the API does with what is not an event; return the rejections."""
    fields = [body if isinstance(body, dict) else {} for body in bodies]
    records = [
        RejectionRecord(
            id=new_id(),
            customer_id=UNROUTED.customer_id,
            platform_id=platform_id or UNROUTED.platform_id,
            source=each.get("source"),
            reference=each.get("reference"),
            body=body if isinstance(body, str) else json.dumps(body),
            reason="MALFORMED",
            detail=None,
            recorded_at=datetime.now(UTC),
        )
        for body, each in zip(bodies, fields, strict=True)
    ]

    keep_records(world, records)
    return [record.id for record in records]


def keep_records(world: World, records: Sequence[RejectionRecord]) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(world.api_url) as connection:
            await kept.keep(connection, records, INBOX_KEY)

    asyncio.run(run())


@pytest.mark.parametrize("is_operator", [True, False])
def test_what_the_api_does_not_accept_is_booked_by_the_engine(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder, *, is_operator: bool
) -> None:
    settlement = {"network": "VISA", "settlementDate": str(YESTERDAY.date()), "cycle": 7}
    event = world.clearing(cardholder, "T1", 700, settlement=settlement)
    keys = keep(world, None if is_operator else platform, event, event)
    report = world.verify()

    decided = world.drain(engine, Lane.BULK)

    assert report.holds, report.differences  # What is about to be booked.
    assert outcomes_of(decided) == ["APPLIED"]
    assert items(world, cardholder) == [("CLEARING", 700, "REJECTED", "MALFORMED", True)]
    assert world.rows("SELECT posted_on, network FROM suspense_items WHERE id = %s", keys[0]) == [
        (YESTERDAY.date(), "VISA")
    ]
    assert [row[2] for row in unapplied(world, cardholder)] == keys[:1] * 2
    check(world, cardholder)
    corrected = {key: value for key, value in event.items() if key != "settlement"}
    assert outcomes(world, engine, cardholder, corrected) == ["APPLIED"]
    assert items(world, cardholder) == [("CLEARING", 700, "REJECTED", "MALFORMED", False)]
    assert system_balances(world, cardholder) == (0, 700)
    check(world, cardholder)


def test_a_repetition_that_the_api_does_not_accept_is_booked_once(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder
) -> None:
    event = world.clearing(cardholder, "T1", 700) | {"final": 7}
    keep(world, platform, event)
    world.drain(engine, Lane.BULK)
    before = world.count("outcomes")

    keep(world, platform, event)
    decided = world.drain(engine, Lane.BULK)

    assert outcomes_of(decided) == ["DUPLICATE"]
    assert world.count("outcomes") == before
    assert len(items(world, cardholder)) == 1
    check(world, cardholder)


def test_what_is_corrected_before_the_engine_sees_the_rejection_is_not_booked(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder
) -> None:
    event = world.clearing(cardholder, "T1", 700)
    keep(world, platform, event | {"final": 7})
    assert outcomes(world, engine, cardholder, event) == ["APPLIED"]

    assert outcomes_of(world.drain(engine, Lane.BULK)) == ["DUPLICATE"]

    assert items(world, cardholder) == []
    assert unapplied(world, cardholder) == []
    check(world, cardholder)


def test_without_a_reference_each_rejection_is_a_movement(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder
) -> None:
    event = {"type": "RETURN", "cardId": f"Card:{cardholder.card_id}", "amount": 5}
    keep(world, platform, event, event)

    assert outcomes_of(world.drain(engine, Lane.BULK)) == ["APPLIED", "APPLIED"]

    assert items(world, cardholder) == [("RETURN", 5, "REJECTED", "MALFORMED", True)] * 2
    check(world, cardholder)


@pytest.mark.parametrize("references", [("", ""), ("7" * 255 + "1", "7" * 255 + "2")])
def test_with_a_reference_that_is_empty_or_cut_each_rejection_is_a_movement(
    world: World,
    engine: Engine,
    platform: Id,
    cardholder: Cardholder,
    references: tuple[str, str],
) -> None:
    records = []
    for reference in references:
        found = parsing.read(world.clearing(cardholder, "T1", 5) | {"reference": reference})
        assert isinstance(found, parsing.Malformed)
        records.append(found.rejection(new_id(), datetime.now(UTC), platform))

    keep_records(world, records)
    decided = world.drain(engine, Lane.BULK)

    assert outcomes_of(decided) == ["APPLIED", "APPLIED"]
    assert items(world, cardholder) == [("CLEARING", 5, "REJECTED", "MALFORMED", True)] * 2
    check(world, cardholder)


def test_junk_of_a_stranger_leaves_nothing_but_its_rejections(
    world: World, cardholder: Cardholder
) -> None:
    stranger = world.platform()
    event = world.clearing(cardholder, "T1", 700)
    waiting = world.count_waiting()

    keep(
        world,
        stranger,
        event,
        event | {"cardId": f"Card:{new_id()}"},
        event | {"amount": True},
        event | {"type": ["CLEARING"]},
        [event],
        "{" * 5_000,
        json.dumps(event).ljust(200_000),
    )

    assert world.count_waiting() == waiting
    check(world, cardholder)


def test_what_a_program_enqueues_and_no_event_is_is_booked(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    event = world.clearing(cardholder, "T1", 700) | {"final": 7}
    with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as program:
        program.execute("SELECT enqueue(%s::jsonb, 'LIVE')", [json.dumps([event])])

    assert Mover(world.database, INBOX_KEY, lambda _: None).move()

    assert outcomes_of(world.drain(engine, Lane.BULK)) == ["APPLIED"]
    assert items(world, cardholder) == [("CLEARING", 700, "REJECTED", "MALFORMED", True)]
    check(world, cardholder)


def test_what_is_quarantined_is_booked(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    endless = token_hex(20_000)  # Longer than the index of outcomes can hold.
    event = world.clearing(cardholder, "T1", 700) | {"reference": endless}
    world.insert_unchecked(cardholder, json.dumps(event), reference=endless)
    world.accept([(cardholder, world.deposit(cardholder, 7))])

    decided = world.drain(engine)

    assert sorted(outcomes_of(decided)) == ["APPLIED", "REJECTED"]
    assert items(world, cardholder) == [("CLEARING", 700, "REJECTED", "INTERNAL_ERROR", True)]
    check(world, cardholder)


def test_what_is_quarantined_while_its_day_is_closed_is_booked_on_the_next(
    own_roles: OwnRoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_open_day = "UPDATE books SET first_open_day = %s"
    today = datetime.now(UTC).date()
    with open_office(own_roles) as office, open_world(office.owner, office.app) as world:
        world.connection.execute(first_open_day, [YESTERDAY.date()])
        cardholder = world.cardholder(world.platform(), 1_000)
        endless = token_hex(20_000)
        event = world.clearing(cardholder, "T1", 700, occurredAt=YESTERDAY.isoformat())
        body = json.dumps(event | {"reference": endless})
        key = world.insert_unchecked(cardholder, body, reference=endless)
        world.accept([(cardholder, world.deposit(cardholder, 7))])
        append_entries = writes.append_entries

        def close_first(connection: Any, records: Any) -> None:  # noqa: ANN401 - as it is called
            if [record[0] for record in records] == [key]:  # Of the item, not of the attempts.
                world.connection.execute(first_open_day, [today])
            append_entries(connection, records)

        monkeypatch.setattr(writes, "append_entries", close_first)
        world.drain(world.engine())

        dates = world.rows("SELECT posted_on, late_from FROM entries WHERE subject_id = %s", key)
        assert dates == [(today, YESTERDAY.date())]
        check(world, cardholder)


# --- the books of a platform ----------------------------------------------------------------------


def test_accounts_that_an_earlier_release_did_not_open_are_opened(world: World) -> None:
    platform = world.platform()
    cardholder = world.cardholder(platform, 1_000)
    world.connection.execute(
        "DELETE FROM system_accounts WHERE platform_id = %s AND kind IN ('SUSPENSE',"
        " 'INTERCHANGE', 'NETWORK_FEES', 'SETTLEMENT_BANK')",
        [platform],
    )
    engine = world.engine()

    first = outcomes(
        world, engine, cardholder, world.clearing(cardholder, "T1", 700, currency="EUR")
    )
    second = outcomes(world, engine, cardholder, world.clearing(cardholder, "T1", 70))

    assert (first, second) == (["REJECTED"], ["APPLIED"])
    assert len(items(world, cardholder)) == 1
    assert world.rows("SELECT count(*) FROM system_accounts WHERE platform_id = %s", platform) == [
        (13,)
    ]
    check(world, cardholder)


# --- what the audit and the database hold ---------------------------------------------------------

CHANGES: Final = {
    "an item's amount": "UPDATE suspense_items SET amount = amount + 1 WHERE amount < 1000",
    "an item's type": "UPDATE suspense_items SET type = 'RETURN' WHERE type = 'CLEARING'",
    "an item's currency": "UPDATE suspense_items SET currency = 'EUR'",
    "an item's cardholder": "UPDATE suspense_items SET customer_id = gen_random_uuid()",
    "an item's card": "UPDATE suspense_items SET card_id = gen_random_uuid()",
    "an item's reason": "UPDATE suspense_items SET reason = 'OUTDATED' WHERE cause = 'REJECTED'",
    "an item's day": "UPDATE suspense_items SET posted_on = posted_on - 1",
    "an item that is resolved without an entry": (
        "UPDATE suspense_items SET resolved_at = now(), resolved_by = id WHERE resolved_at IS NULL"
    ),
    "an item that is open again": (
        "UPDATE suspense_items SET resolved_at = NULL, resolved_by = NULL"
        " WHERE resolved_at IS NOT NULL"
    ),
    "what resolved an item": (
        "UPDATE suspense_items SET resolved_by = gen_random_uuid()"
        " WHERE resolved_at IS NOT NULL AND cause = '{}'"
    ),
    "an item that nothing has resolved": (
        "WITH item AS (UPDATE suspense_items SET resolved_at = now(), resolved_by = id"
        " WHERE resolved_at IS NULL AND cause = '{}' RETURNING id)"
        " INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,"
        " credit_account_id, amount, recorded_at, occurred_at, posted_on)"
        " SELECT subject_id, 1, line, customer_id, credit_account_id, debit_account_id, amount,"
        " now(), now(), (now() AT TIME ZONE 'UTC')::date FROM entries JOIN item ON subject_id = id"
    ),
    "an item that was never taken back": (
        "WITH item AS (UPDATE suspense_items SET resolved_at = NULL, resolved_by = NULL"
        " WHERE resolved_at IS NOT NULL AND cause = '{}' RETURNING id)"
        " DELETE FROM entries e USING item WHERE e.subject_id = item.id AND e.sequence = 1"
    ),
    "a missing item": "DELETE FROM suspense_items WHERE cause = 'REJECTED'",
    "a missing item and its entries": (
        "WITH gone AS (DELETE FROM suspense_items WHERE resolved_at IS NULL"
        " AND cause = '{}' RETURNING id) DELETE FROM entries USING gone WHERE subject_id = gone.id"
    ),
    "an entry's amount": (
        "UPDATE entries e SET amount = e.amount + 1 FROM suspense_items i"
        " WHERE i.id = e.subject_id AND e.amount < 1000"
    ),
    "an entry's direction": (
        "UPDATE entries e SET debit_account_id = credit_account_id,"
        " credit_account_id = debit_account_id FROM suspense_items i WHERE i.id = e.subject_id"
    ),
    "an entry's day": (
        "UPDATE entries e SET posted_on = e.posted_on - 1 FROM suspense_items i"
        " WHERE i.id = e.subject_id AND e.sequence = 0"
    ),
    "a missing entry": (
        "DELETE FROM entries e USING suspense_items i WHERE i.id = e.subject_id AND e.sequence = 1"
    ),
}


UNGUARDED: Final = (
    "SET session_replication_role = replica",
    "ALTER TABLE entries DISABLE TRIGGER append_only",
    "ALTER TABLE suspense_items DISABLE TRIGGER no_removal",
)


def verified_after(world: World, *statements: str) -> list[str]:
    """Return what the audit finds after `statements`, which are rolled back."""
    with psycopg.connect(world.url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        report = verify_in_transaction(connection, lambda _done, _total: None)
        connection.rollback()
    return report.differences


@pytest.fixture(scope="module")
def suspended(world: World, platform: Id, engine: Engine) -> Cardholder:
    """A cardholder with open and resolved items of both causes."""
    made = world.cardholder(platform, 10_000)
    wrong = world.clearing(made, "T2", 30, currency="EUR")
    outcomes(world, engine, made, wrong, world.event("CLEARING_REVERSAL", made, "T1", 20))
    outcomes(world, engine, made, wrong | {"currency": "USD"}, world.clearing(made, "T1", 20))
    outcomes(world, engine, made, world.clearing(made, "T3", 40, currency="EUR"))
    outcomes(world, engine, made, world.event("CLEARING_REVERSAL", made, "T4", 50))
    return made


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cause", ["REJECTED", "PARKED"])
def test_a_change_of_an_item_or_an_entry_is_found(
    world: World,
    suspended: Cardholder,  # noqa: ARG001 - the scene
    change: str,
    cause: str,
) -> None:
    guards = [*UNGUARDED, "ALTER TABLE suspense_items DISABLE TRIGGER resolved_once"]

    assert verified_after(world, *guards) == []
    assert verified_after(world, *guards, CHANGES[change].replace("{}", cause))


def without_item(world: World, cardholder: Cardholder, amount: int) -> list[str]:
    """Return what the audit finds when an item of `amount` is missing, with its entries."""
    return verified_after(world, *UNGUARDED, removal(cardholder, f"amount = {amount}"))


def removal(cardholder: Cardholder, condition: str) -> str:
    """Return the statement that removes items of `cardholder` with their entries."""
    return (
        "WITH gone AS (DELETE FROM suspense_items"
        f" WHERE customer_id = '{cardholder.owner.customer_id}' AND {condition}"
        " RETURNING id) DELETE FROM entries USING gone WHERE subject_id = gone.id"
    )


def test_each_movement_under_a_used_key_is_missed(
    world: World, engine: Engine, cardholder: Cardholder
) -> None:
    first = world.clearing(cardholder, "T1", 700)
    outcomes(world, engine, cardholder, first, first | {"amount": 800}, first | {"amount": 900})

    [problem] = without_item(world, cardholder, 900)

    assert "a CLEARING of 900 minor units has no item in suspense" in problem


def test_an_outcome_under_the_key_of_another_cardholder_excuses_no_missing_item(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder
) -> None:
    other = world.cardholder(platform, 1_000)
    applied = world.clearing(other, "T1", 70)
    outcomes(world, engine, other, applied)
    wrong = world.clearing(cardholder, "T1", 71, currency="EUR")
    outcomes(world, engine, cardholder, wrong | {"reference": applied["reference"]})

    [problem] = without_item(world, cardholder, 71)

    assert "a CLEARING of 71 minor units has no item in suspense" in problem


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE suspense_items SET amount = amount + 1",
        (
            "UPDATE suspense_items SET resolved_at = now(), resolved_by = id, amount = 1"
            " WHERE resolved_at IS NULL"
        ),
        "UPDATE suspense_items SET resolved_at = now() WHERE resolved_at IS NOT NULL",
        (
            "UPDATE suspense_items SET resolved_at = NULL, resolved_by = NULL"
            " WHERE resolved_at IS NOT NULL"
        ),
        "UPDATE suspense_items SET reason = NULL WHERE resolved_at IS NULL",
        "DELETE FROM suspense_items",
        "TRUNCATE suspense_items",
    ],
)
@pytest.mark.parametrize("as_replica", [True, False])
def test_an_item_is_resolved_once_and_changed_in_no_other_way(
    world: World,
    suspended: Cardholder,  # noqa: ARG001 - the scene
    change: str,
    *,
    as_replica: bool,
) -> None:
    with psycopg.connect(world.url) as owner:
        if as_replica:
            owner.execute("SET session_replication_role = replica")
        with pytest.raises(errors.InsufficientPrivilege, match="suspense_items is append-only"):
            owner.execute(change.encode())


def test_finance_sees_items_that_add_up_to_the_balance_of_suspense(
    world: World,
    suspended: Cardholder,
) -> None:
    of = [suspended.owner.platform_id]
    with psycopg.connect(as_role(world.app_url, Role.FINANCE)) as finance:
        view = finance.execute(
            "SELECT currency, sum(open_amount) FROM finance.suspense WHERE platform_id = %s"
            " GROUP BY 1",
            of,
        ).fetchall()
        function = finance.execute(
            "SELECT currency, sum(open_amount) FROM finance.suspense(NULL, NULL)"
            " WHERE platform_id = %s GROUP BY 1",
            of,
        ).fetchall()
        balance = finance.execute(
            "SELECT currency, finance.balance(account_id, NULL, NULL) FROM finance.accounts"
            " WHERE platform_id = %s AND kind = 'SUSPENSE'",
            of,
        ).fetchall()
        unlisted = finance.execute(
            "SELECT count(*) FROM finance.suspense s WHERE s.open_amount <> 0 AND NOT EXISTS ("
            "SELECT FROM finance.unapplied u WHERE u.suspense_id = s.suspense_id)"
        ).fetchone()

    assert view == function == balance
    assert unlisted == (0,)


def test_a_rejected_event_under_the_key_of_another_cardholder_stays_listed(
    world: World, engine: Engine, platform: Id, cardholder: Cardholder
) -> None:
    other = world.cardholder(platform, 1_000)
    booked = world.clearing(other, "T1", 10)
    outcomes(world, engine, other, booked)
    stray = booked | {"cardId": f"Card:{new_id()}", "amount": 20}

    unknown = Owner(UNROUTED.customer_id, platform)  # As the client addresses it.
    message = inbox.address(stray, unknown, lane=Lane.LIVE, reply_to=None, at=datetime.now(UTC))
    world.accept_messages([message])
    [decided] = world.drain(engine)

    listed = "SELECT amount, suspense_id FROM finance.unapplied WHERE message_id = %s"
    before = world.rows(listed, message.id)
    # Corrected, it is decided under the same key, by a message that came later.
    fixed = world.clearing(cardholder, "T1", 20) | {"reference": booked["reference"]}
    applied = outcomes(world, engine, cardholder, fixed)

    assert decided.reason == "UNKNOWN_CARD"
    assert before == [(20, None)]
    assert applied == ["APPLIED"]
    assert world.rows(listed, message.id) == []
    check(world, cardholder)

"""Credits that the network authorizes before it moves them, in the tables."""

import json
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core import card_transaction, credit
from cardledger.ledger.core.card_transaction import CardTransaction
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.status import Closure, Status
from cardledger.ledger.projections import history
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import credited
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType
from tests.examples import examples
from tests.integration.test_lives import NOON, Life, state
from tests.integration.test_timeout_reversals import authorization, process, reversal_of
from tests.world import World, open_world, outcomes_of

_FIXTURE = Path(__file__).parents[1] / "fixtures" / "credit_lifecycles.json"
LIFECYCLES = json.loads(_FIXTURE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()  # Everything that was played here, from zero.
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=lambda life: life["id"])
def test_a_life_cycle_of_a_credit_has_its_numbers_in_the_tables(
    world: World, platform: Id, lifecycle: dict[str, Any]
) -> None:
    if any(step["type"] == "CARD_FROZEN" for step in lifecycle["steps"]):
        pytest.skip("a card is frozen beside the queue")
    life = Life(world, platform, lifecycle["startBalance"])

    for step in lifecycle["steps"]:
        if step["type"] == "FUND":
            life.deposit(step["amount"])
        else:
            fields = {"final": step["final"]} if "final" in step else {}
            life.submit(step["type"], step.get("amount"), step["transaction"], **fields)

        assert world.account(life.cardholder) == step["expect"]


def test_what_is_unusual_about_a_credit_is_flagged(world: World, platform: Id) -> None:
    life = Life(world, platform, 10_000)

    assert life.submit("CREDIT_AUTHORIZATION", 100).reason is None
    assert life.submit("CLEARING", 40).reason is None
    assert life.submit("AUTHORIZATION_ADVICE", 30).reason == OutcomeFlag.ADVICE_BELOW_SETTLED
    assert life.submit("RETURN", 60).reason == OutcomeFlag.LATE_CLEARING
    assert life.submit("AUTHORIZATION_REVERSAL", 1).outcome is OutcomeType.IGNORED
    assert life.submit("CREDIT_AUTHORIZATION_ADVICE", 300, "T2").reason is None
    assert life.submit("AUTHORIZATION_REVERSAL", 301, "T2").reason == OutcomeFlag.OVER_REVERSAL
    assert life.submit("CLEARING", 300, "T2").reason == OutcomeFlag.LATE_CLEARING
    assert life.submit("CLEARING_REVERSAL", 301, "T2").outcome is OutcomeType.PARKED
    assert life.balance == 10_400


def test_a_credit_before_its_authorization_is_reversed_waits_for_it(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 0)

    early = life.submit("AUTHORIZATION_REVERSAL", 30)
    life.submit("CREDIT_AUTHORIZATION", 100)

    assert early.outcome is OutcomeType.PARKED
    assert life.column("credit_authorized") == 70
    assert life.webhooks() == ["AUTHORIZED", "AUTHORIZED"]


def test_what_was_credited_though_it_was_declined_is_void_once_all_of_it_is_taken_back(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 0)
    life.submit("CREDIT_AUTHORIZATION", 50, merchant={"descriptor": "SHOES 003"})
    life.submit("CLEARING", 30, final=False)

    back = life.submit("CLEARING_REVERSAL", 30)

    assert (state(back).status, state(back).closed_by) == (Status.VOIDED, Closure.REVERSED)
    assert life.column("expires_at") is None
    assert life.webhooks() == ["DECLINED", "PARTIALLY_SETTLED", "VOIDED"]


def test_an_authorized_credit_expires_by_the_schedule(world: World, platform: Id) -> None:
    life = Life(world, platform, 0)
    approved = life.submit("CREDIT_AUTHORIZATION", 100, merchant={"descriptor": "SHOES"})
    assert approved.roll_up is not None
    expires_at = approved.roll_up.expires_at
    assert expires_at is not None

    [expired] = life.run_timers(expires_at + timedelta(seconds=1))

    assert (state(expired).status, state(expired).closed_by) == (Status.VOIDED, Closure.EXPIRED)
    assert expires_at > NOON
    assert life.webhooks() == ["AUTHORIZED", "VOIDED"]


def test_a_closed_card_ends_an_authorized_credit_and_takes_what_clears_late(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 0)
    life.submit("CREDIT_AUTHORIZATION", 100)

    life.close_card()
    voided = life.column("status"), life.column("closed_by")
    late = life.submit("CLEARING", 100)

    assert voided == ("VOIDED", "CARD_CLOSED")
    assert (late.reason, state(late).status) == (OutcomeFlag.LATE_CLEARING, Status.SETTLED)
    assert life.balance == 100


def test_a_cleared_credit_pays_what_is_owed(world: World, platform: Id) -> None:
    life = Life(world, platform, 50)
    life.submit("CLEARING", 200, "T2")
    life.submit("CREDIT_AUTHORIZATION", 500)
    owed = life.owed

    life.submit("CLEARING", 500)

    assert (owed, life.owed, life.balance) == (200, 0, 350)


def test_an_approved_credit_that_could_not_be_reported_is_reversed(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = authorization(world, cardholder, 300) | {"type": "CREDIT_AUTHORIZATION"}

    approved, reversed_, again = process(
        world, cardholder, event, reversal_of(cardholder, event), event
    )

    assert approved.outcome is OutcomeType.APPLIED
    assert (reversed_.outcome, reversed_.reason) == (OutcomeType.APPLIED, "DECISION_TIMEOUT")
    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert state(again).status is Status.VOIDED


def test_a_credit_that_comes_after_its_timeout_reversal_is_declined(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = authorization(world, cardholder, 300) | {"type": "CREDIT_AUTHORIZATION"}

    declined, late = process(world, cardholder, reversal_of(cardholder, event), event)

    assert (declined.outcome, declined.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert (late.outcome, late.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert state(late).status is Status.DECLINED


def test_the_timeout_of_a_credit_leaves_a_purchase_with_the_same_token(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = authorization(world, cardholder, 300) | {"type": "CREDIT_AUTHORIZATION"}
    purchase = world.authorization(cardholder, "T1", 400)

    *_, reversed_ = process(world, cardholder, purchase, event, reversal_of(cardholder, event))

    assert (reversed_.outcome, reversed_.reason) == (OutcomeType.IGNORED, "NOTHING_TO_REVERSE")
    assert world.account(cardholder)["held"] == 400


def test_a_settled_credit_of_an_earlier_release_reads_as_settled(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 0)
    life.submit("FINANCIAL_CREDIT_AUTHORIZATION", 100)
    where = life.cardholder.account_id

    # As releases before schema 0071 wrote them.
    world.connection.execute(
        "UPDATE card_transactions SET status = 'CREDITED' WHERE account_id = %s", [where]
    )
    [(final,)] = world.rows(
        "SELECT e.final FROM card_transaction_events e JOIN card_transactions t"
        " ON t.id = e.card_transaction_id WHERE t.account_id = %s",
        where,
    )
    [(shown,)] = world.rows(
        "SELECT card_transaction_json(id) ->> 'status' FROM card_transactions"
        " WHERE account_id = %s",
        where,
    )

    assert final is True
    assert shown == "SETTLED"
    assert world.verify().holds


Story = list[tuple[str, int]]

_DECLINED, _CREDIT = ("AUTHORIZATION", 90_000), ("CREDIT_AUTHORIZATION", 60)


@pytest.mark.parametrize(
    ("story", "mcc"),
    [
        ([_DECLINED, _CREDIT], "5411"),
        ([_CREDIT, _DECLINED], "7011"),
        ([_CREDIT, _DECLINED], "5541"),
        ([_CREDIT, _DECLINED, _CREDIT, _DECLINED], "5541"),
        ([_DECLINED, _DECLINED, _CREDIT, _CREDIT], "3400"),
        ([_CREDIT, _DECLINED], "5970"),
        ([_CREDIT, _DECLINED], None),
    ],
)
def test_credits_that_an_earlier_release_stored_as_declined_are_corrected(
    world: World, platform: Id, story: Story, mcc: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = written_by_an_earlier_release(world, platform, story, mcc, monkeypatch)
    others = stored_rows(world, but=key)
    wrong = world.verify().differences

    corrected = [world.connection.execute(CORRECT).rowcount for _ in range(2)]

    assert {difference.split(" is ")[0] for difference in wrong} == {
        f"CardTransaction:{key}: stored {column}"
        for column in ("status", "authorizations", "declined", "decline_reason", "expires_at")
    }
    assert corrected == [1, 0]
    assert world.verify().holds
    assert stored_rows(world, but=key) == others


def test_what_else_an_earlier_release_has_stored_is_left_to_verify(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = [_DECLINED, _CREDIT, ("CLEARING", 60)]
    key = written_by_an_earlier_release(world, platform, story, "5411", monkeypatch)

    corrected = world.connection.execute(CORRECT).rowcount
    shown = world.verify().differences
    forget(world, key)

    assert corrected == 0
    assert shown
    assert {each.partition(": ")[0] for each in shown} == {f"CardTransaction:{key}"}


CORRECT: Any = import_module(
    "cardledger.schema.migrations.versions.0113_credits_beside_declined_purchases"
)._CORRECT


def written_by_an_earlier_release(
    world: World, platform: Id, story: Story, mcc: str | None, monkeypatch: pytest.MonkeyPatch
) -> Id:
    """Return the card transaction with `story`, decided by the rules of schema 0094."""

    def refused(draft: CardTransaction, amount: int, reason: DeclineReason) -> None:
        draft.authorizations += 1
        if not (draft.authorized or draft.settlement_count or draft.refund_count):
            draft.declined = amount
            draft.decline_reason = reason

    cardholder = world.cardholder(platform, 1_000)
    with monkeypatch.context() as earlier:
        earlier.setattr(card_transaction, "_refuse", refused)
        earlier.setattr(
            credit, "_is_alone", lambda known: not (known.authorizations or known.settlement_count)
        )
        for kind, amount in story:
            merchant = {"merchant": {"descriptor": "SHOP", "mcc": mcc}} if mcc else {}
            event = world.event(kind, cardholder, "T1", amount, **merchant)
            world.process(world.engine(), [(cardholder, event)])
    [(key,)] = world.rows(
        "SELECT id FROM card_transactions WHERE account_id = %s", cardholder.account_id
    )
    found: Id = key
    return found


def stored_rows(world: World, *, but: Id) -> list[Any]:
    return world.rows("SELECT * FROM card_transactions WHERE id <> %s ORDER BY id", but)


def forget(world: World, key: Id) -> None:
    """Store of a card transaction what its events give, for what is proved at the end."""
    with world.connection.cursor() as cursor:
        [after] = history.current(world.connection, [key]).values()
        [again] = history.at(world.connection, [(key, after.state.sequence)]).values()
        cursor.execute(
            "UPDATE card_transactions SET (status, authorizations, declined, decline_reason,"
            " expires_at) = ROW (%s, %s, %s, %s, %s) WHERE id = %s",
            [
                again.state.status,
                again.state.authorizations,
                again.state.declined,
                again.state.decline_reason,
                again.expires_at,
                key,
            ],
        )


@settings(max_examples=examples(30))
@given(st.data())
def test_after_any_story_of_credits_the_books_are_those_of_the_model(
    world: World, platform: Id, data: st.DataObject
) -> None:
    cardholder, model = world.cardholder(platform, 0), Model()
    engine = world.engine()
    closed = {"CARD_CLOSED", "PULL_CONFIRMATION"}  # Tests of their own.

    for event in data.draw(credited(cardholder.scene, max_size=8)):
        if event["type"] not in closed:
            expected = model.submit(event)
            assert outcomes_of(world.process(engine, [(cardholder, event)])) == [expected]

    world.check_books(cardholder, model)

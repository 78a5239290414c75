"""Payments of the ledger beside the model: any of them, in any order, with time that passes."""

from collections.abc import Iterator
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.payments.conversion import LockedSide, Rate
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.testing.payments import PLATFORM, Payment, PaymentModel
from cardledger.schema.ids import Id
from tests.examples import examples
from tests.payments import DELAY, Conversion, Desk
from tests.world import Cardholder, World, open_world

_OWNERS = st.sampled_from(["ada", "bob"])
_AMOUNTS = st.integers(2, 400)
_ENDINGS = st.sampled_from(["002", "003", "004", "005", "006", "007", "111", "222"])
_RATES = st.sampled_from([(92, 100), (3, 2), (1, 7), (1_000, 1), (999_983, 1_000_003)])


class PaymentMachine(RuleBasedStateMachine):
    """Requests the same payments of a ledger and of the model."""

    world: ClassVar[World]

    @initialize(funds=st.integers(1, 2_000))
    def open(self, funds: int) -> None:
        self.model = PaymentModel()
        self.desk = Desk(self.world)
        self.platform = self.world.platform()
        self.accounts: dict[tuple[str, str], Cardholder] = {
            (PLATFORM, currency): self.desk.platform_account(self.platform, currency)
            for currency in ("USD", "EUR")
        }
        for owner in ("ada", "bob"):
            dollars = self.world.cardholder(self.platform)
            self.accounts[owner, "USD"] = dollars
            self.accounts[f"savings of {owner}", "USD"] = self.world.another_account(dollars)
            self.accounts[owner, "EUR"] = self.world.another_account(dollars, currency="EUR")
        self.payments: dict[str, Id] = {}
        self.fund("ada", funds)

    @rule(owner=st.sampled_from(["ada", "bob", PLATFORM]), amount=_AMOUNTS)
    def fund(self, owner: str, amount: int) -> None:
        self.model.fund(owner, "USD", amount)
        account = self.accounts[owner, "USD"]
        self.world.process(self.desk.engine, [(account, self.world.deposit(account, amount))])

    @rule(
        owner=_OWNERS,
        amount=_AMOUNTS,
        fee=st.integers(0, 5),
        ending=_ENDINGS,
        quote=st.sampled_from([None, "of an account", "of money from outside"]),
        rate=st.none() | _RATES,
    )
    def pay_out(  # noqa: PLR0913, PLR0917 - drawn
        self,
        owner: str,
        amount: int,
        fee: int,
        ending: str,
        quote: str | None,
        rate: tuple[int, int] | None,
    ) -> None:
        is_quoted, is_funded = quote is not None, quote == "of money from outside"
        amount += fee
        received = amount - fee if rate is None else (amount - fee) * rate[0] // rate[1]
        if not received:
            return
        name, source = f"p{len(self.payments)}", self.accounts[owner, "USD"]
        self.model.pay_out(
            name,
            Payment(
                (owner, "USD"),
                amount,
                fee,
                received,
                "USD" if rate is None else "EUR",
                ending,
                is_quoted,
                is_funded,
            ),
        )
        fields = {"quote_id": source.card_id, "is_funded": is_funded} if is_quoted else {}
        number = f"1234567{ending}" if rate is None else f"DE89370400440532013{ending}"
        self.payments[name] = self.desk.out(
            source,
            amount,
            number,
            conversion=None if rate is None else Conversion("EUR", Rate(*rate)),
            fee_amount=fee,
            **fields,
        )
        self.desk.drain()

    @rule(owner=_OWNERS, amount=_AMOUNTS, ending=_ENDINGS)
    def pull(self, owner: str, amount: int, ending: str) -> None:
        name = f"p{len(self.payments)}"
        self.model.pull(
            name,
            Payment(
                (owner, "USD"), amount, 0, amount, "USD", ending, is_quoted=False, is_pull=True
            ),
        )
        self.payments[name] = self.desk.pull(
            self.accounts[owner, "USD"], amount, f"1234567{ending}"
        )
        self.desk.drain()

    @rule(
        owner=_OWNERS,
        amount=_AMOUNTS,
        fee=st.integers(0, 5),
        rate=_RATES,
        side=st.sampled_from(LockedSide),
    )
    def exchange(
        self, owner: str, amount: int, fee: int, rate: tuple[int, int], side: LockedSide
    ) -> None:
        if side is LockedSide.RECEIVING:
            # The least that gives it: more may be received for the same.
            received = locked = amount
            amount = -(-received * rate[1] // rate[0]) + fee
        else:
            locked = amount = amount + fee
            received = (amount - fee) * rate[0] // rate[1]
        if not received:
            return
        source, destination = self.accounts[owner, "USD"], self.accounts[owner, "EUR"]
        payment = Payment((owner, "USD"), amount, fee, received, "EUR", "", is_quoted=True)
        has_money = self.model.exchange(payment)
        key = self.desk.exchange(
            source, destination, locked, Conversion("EUR", Rate(*rate), side), fee_amount=fee
        )
        self.desk.drain()
        assert self.desk.stored(key).status == ("COMPLETED" if has_money else "FAILED")

    @rule(sender=_OWNERS, receiver=st.sampled_from(["ada", "bob", PLATFORM]), amount=_AMOUNTS)
    def pay(self, sender: str, receiver: str, amount: int) -> None:
        if sender == receiver:
            return
        has_money = self.model.pay((sender, "USD"), receiver, amount)
        key = self.desk.pay(self.accounts[sender, "USD"], self.accounts[receiver, "USD"], amount)
        self.desk.drain()
        assert self.desk.stored(key).status == ("COMPLETED" if has_money else "FAILED")

    @rule(owner=_OWNERS, amount=_AMOUNTS, is_back=st.booleans())
    def save(self, owner: str, amount: int, is_back: bool) -> None:  # noqa: FBT001 - drawn
        way = [owner, f"savings of {owner}"]
        sender, receiver = reversed(way) if is_back else way
        has_money = self.model.pay((sender, "USD"), receiver, amount)
        key = self.desk.submit(
            self.accounts[sender, "USD"],
            amount,
            self.accounts[receiver, "USD"].account_id,
            Kind.INTERNAL,
        )
        self.desk.drain()
        assert self.desk.stored(key).status == ("COMPLETED" if has_money else "FAILED")

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.payments:
            name = data.draw(st.sampled_from(sorted(self.payments)))
            was_pending = self.model.cancel(name)
            decided = self.desk.cancel(self.payments[name])[0]
            assert (decided.outcome == "APPLIED") == was_pending or (
                decided.outcome == "DUPLICATE" and not was_pending
            )

    @rule(number=st.sampled_from([1, 2, 12]))
    def pass_time(self, number: int) -> None:
        self.model.pass_delays(number)
        for _ in range(number):
            self.desk.pass_time(DELAY)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "payments"):
            return
        for account, holder in self.accounts.items():
            assert self.world.balance(holder) == self.model.money[account], account
        for name, key in self.payments.items():
            stored, expected = self.desk.stored(key), self.model.payments[name]
            assert (stored.status, stored.failure_reason, stored.refund_status) == (
                expected.status,
                expected.reason,
                expected.refund,
            ), name
        assert self.desk.totals(self.platform) == self.model.totals()


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def test_the_ledger_and_the_model_agree_about_payments(world: World) -> None:
    class Machine(PaymentMachine):
        pass

    Machine.world = world
    Machine.TestCase.settings = settings(
        max_examples=examples(12),
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    Machine.TestCase().runTest()

    report = world.verify()
    assert report.holds, report.differences

"""Twenty clients over payments, conversions and card events: money is kept at every read."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event, Lock

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.payments.conversion import Rate
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from tests.payments import Conversion, Desk
from tests.world import Cardholder, World, open_world

_CLIENTS = 20
_ACTIONS = 8
_ENDINGS = ("002", "004", "005", "111", "222", "333")
_EUR = Conversion("EUR", Rate(92, 100))

# One statement, so one snapshot: accounts of owners as stored, the others by their entries.
_KEPT = """
    SELECT currency, sum(amount) FROM (
        SELECT currency, balance::numeric AS amount FROM internal_accounts WHERE platform_id = %(p)s
        UNION ALL
        SELECT s.currency, CASE s.id WHEN e.credit_account_id THEN e.amount ELSE -e.amount END
        FROM system_accounts s JOIN entries e ON s.id IN (e.debit_account_id, e.credit_account_id)
        WHERE s.platform_id = %(p)s
    ) m GROUP BY currency
"""


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


class Storm:
    """Clients that request at once, workers that decide, and a reader that adds up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.desk = Desk(world)
        self.platform: Id = world.platform()
        self.own = self.desk.platform_account(self.platform)
        self.holders = [world.cardholder(self.platform, 100_000) for _ in range(6)]
        self.euros = [world.another_account(each, currency="EUR") for each in self.holders]
        self.done = Event()
        self.begin = Barrier(_CLIENTS)
        self.reads = 0
        self.made: Counter[str] = Counter()
        self.lock = Lock()

    def client(self, number: int) -> None:
        random = Random(number)  # noqa: S311 - a seed, so that a failure can be repeated
        self.begin.wait(30)
        for _ in range(_ACTIONS):
            place = random.randrange(len(self.holders))
            action = random.choice([self.card, self.out, self.exchange, self.pay])
            action(random, self.holders[place], self.euros[place])
            with self.lock:
                self.made[action.__name__] += 1

    def card(self, random: Random, holder: Cardholder, _euros: Cardholder) -> None:
        token, amount = str(new_id()), random.randrange(1, 500)
        scene = holder.scene
        events = [
            scene.event("AUTHORIZATION", token, amount=amount),
            scene.event("CLEARING", token, amount=amount),
        ]
        self.world.accept([(holder, {**event, "reference": str(new_id())}) for event in events])

    def out(self, random: Random, holder: Cardholder, _euros: Cardholder) -> None:
        is_converted = random.random() < 0.5
        ending = random.choice(_ENDINGS)
        number = f"DE89370400440532013{ending}" if is_converted else f"1234567{ending}"
        self.desk.out(
            holder,
            random.randrange(10, 900),
            number,
            conversion=_EUR if is_converted else None,
            fee_amount=random.randrange(3),
            quote_id=holder.card_id,
        )

    def exchange(self, random: Random, holder: Cardholder, euros: Cardholder) -> None:
        self.desk.exchange(holder, euros, random.randrange(10, 900), _EUR, fee_amount=1)

    def pay(self, random: Random, holder: Cardholder, _euros: Cardholder) -> None:
        receiver = random.choice([each for each in (*self.holders, self.own) if each != holder])
        self.desk.pay(holder, receiver, random.randrange(1, 900))

    def worker(self) -> None:
        while not (self.done.is_set() and not self.world_has_messages()):
            self.desk.engine.drain(Lane.LIVE, range(SHARDS), lambda _decided: None)

    def world_has_messages(self) -> bool:
        with psycopg.connect(self.world.worker_url, autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM inbox").fetchone()
        return row is None or bool(row[0])

    def reader(self) -> None:
        with psycopg.connect(self.world.url, autocommit=True) as connection:
            while not self.done.is_set():
                kept: dict[str, int] = dict(
                    connection.execute(_KEPT, {"p": self.platform}).fetchall()
                )
                assert set(kept.values()) <= {0}, kept
                self.reads += 1


def test_money_is_kept_at_every_read_while_twenty_clients_pay(world: World) -> None:
    storm = Storm(world)

    with ThreadPoolExecutor(_CLIENTS + 4) as threads:
        reader = threads.submit(storm.reader)
        workers = [threads.submit(storm.worker) for _ in range(3)]
        try:
            clients = [threads.submit(storm.client, number) for number in range(_CLIENTS)]
            for client in clients:
                client.result(120)
        finally:
            storm.done.set()
        for thread in (reader, *workers):
            thread.result(60)

    assert storm.made.total() == _CLIENTS * _ACTIONS
    assert set(storm.made) == {"card", "out", "exchange", "pay"}
    assert storm.reads
    report = world.verify()
    assert report.holds, report.differences
    [open_ones] = world.rows(
        "SELECT count(*) FROM transfers WHERE status = 'PROCESSING' AND due_at IS NULL"
    )
    assert open_ones == (0,)

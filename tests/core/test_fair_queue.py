"""The fair queue: no caller waits for another's backlog, and nothing is lost or reordered."""

from collections import Counter
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cardledger.ledger.messaging.fair_queue import FairQueue

Item = tuple[int, int]
"""A caller and a number."""

CALLERS = st.integers(0, 4)
ITEMS = st.lists(CALLERS, max_size=60).map(
    lambda callers: [(caller, number) for number, caller in enumerate(callers)]
)


def caller_of(item: Item) -> int:
    return item[0]


def taken(items: list[Item], limit: int) -> list[Item]:
    """Return the first `limit` items that a queue of `items` gives."""
    queue: FairQueue[int, Item] = FairQueue()
    for item in items:
        queue.put(caller_of(item), item)
    found = (queue.take() for _ in range(limit))
    return [each[1] for each in found if each is not None]


@settings(max_examples=50)
@given(ITEMS, st.integers(1, 40))
def test_each_waiting_caller_gets_its_share(items: list[Item], limit: int) -> None:
    wanted = Counter(map(caller_of, items))

    got = Counter(map(caller_of, taken(items, limit)))

    assert got.total() == min(limit, len(items)), "no place stays empty while an item waits"
    for caller, waiting in wanted.items():
        assert got[caller] >= min(waiting, limit // len(wanted))


@settings(max_examples=50)
@given(ITEMS)
def test_everything_is_taken_once_and_of_each_caller_in_order(items: list[Item]) -> None:
    everything = taken(items, len(items) + 1)

    assert sorted(everything, key=caller_of) == sorted(items, key=caller_of)


class QueueMachine(RuleBasedStateMachine):
    """A fair queue, and lists that show what waits in it."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int, Item] = FairQueue()
        self.waiting: dict[int, list[Item]] = {}
        self.turns_missed: Counter[int] = Counter()  # Since the last own turn, or since it waits.
        self.numbers = count()

    @rule(caller=CALLERS)
    def put(self, caller: int) -> None:
        item = caller, next(self.numbers)
        self.queue.put(caller, item)
        self.waiting.setdefault(caller, []).append(item)

    @rule(without=st.frozensets(CALLERS, max_size=2))
    def take(self, without: frozenset[int]) -> None:
        found = self.queue.take(without=without)

        ready = {caller for caller, items in self.waiting.items() if items} - without
        assert (found is None) == (not ready)
        if found is not None:
            caller, item = found
            assert item == self.waiting[caller].pop(0), "the order of a caller is kept"
            for other in ready - {caller}:
                self.turns_missed[other] += 1
            del self.turns_missed[caller]

    @rule(caller=CALLERS, position=st.integers(0, 3))
    def discard(self, caller: int, position: int) -> None:
        items = self.waiting.get(caller, [])
        item = items.pop(position) if position < len(items) else (caller, -1)
        self.queue.discard(caller, item)
        if not items:
            del self.turns_missed[caller]

    @invariant()
    def no_caller_starves(self) -> None:
        # Each of the four others has at most one turn before it, unless it waits anew.
        assert all(missed <= 2 * 4 for missed in self.turns_missed.values())

    @invariant()
    def nothing_is_lost(self) -> None:
        for caller, items in self.waiting.items():
            assert self.queue.has(caller) == bool(items)
        assert bool(self.queue) == any(self.waiting.values())


TestFairQueue = QueueMachine.TestCase
TestFairQueue.settings = settings(max_examples=30, stateful_step_count=30)

"""Who is being sent how much: what there is room for, and whose turn it is."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from cardledger.ledger.webhooks.leases import Capacity, Delivery
from cardledger.ledger.webhooks.ordering import Queue
from cardledger.schema.ids import Id

SLOW_S: Final = 1.0
"""Whoever answers within this time may have more than one attempt at once."""

_TURNS_KEPT: Final = 1_000  # Whoever is forgotten is as good as new.


class FairShare:
    """Which endpoints have how many of the threads.

    An endpoint may have a share of them: a large one when it answers quickly, a single one until
    it has done so. Of these last, all that did nothing but fail until now have a quarter of the
    threads together, and the others half, so that the dead hold up nobody, and those that answer
    quickly always find a thread.
    """

    def __init__(self, concurrency: int) -> None:
        """Share out `concurrency` threads."""
        self._concurrency: Final = concurrency
        self._share: Final = max(concurrency // 4, 1)
        # The rest is for those that answer quickly, and no others.
        self._for_others: Final = max(concurrency // 2, 1)
        self._for_failing: Final = max(concurrency // 4, 1)
        self._sending: Final[dict[Id, dict[Id, float]]] = defaultdict(dict)  # Since when.
        self._busy: Final[Counter[Queue]] = Counter()
        self._quick: Final[set[Id]] = set()
        self._failing: Final[set[Id]] = set()  # Of those that are being sent something.
        self._turns: Final[dict[Id, int]] = {}  # The last one of each, oldest first.
        self._turn = 0

    def room(self, now: float) -> Capacity:
        """Return what can be taken on now."""
        quick = {one for one in self._quick if not self._is_stuck(one, now)}
        others = [one for one in self._sending if one not in quick]
        failing = sum(len(self._sending[one]) for one in others if one in self._failing)
        known = sum(len(self._sending[one]) for one in others) - failing
        left, left_for_failing = self._for_others - known, self._for_failing - failing
        total = self._concurrency - sum(map(len, self._sending.values()))
        shares = {one: self._share - len(self._sending.get(one, ())) for one in quick}
        return Capacity(
            total=total,
            # Of those that are not known to be quick, and are sent nothing just now.
            share=int(left > 0 or left_for_failing > 0),
            shares=dict.fromkeys(others, 0) | {one: max(n, 0) for one, n in shares.items()},
            others=max(left, 0),
            failing=max(left_for_failing, 0),
            busy=frozenset(self._busy),
            turns=dict(self._turns),
        )

    def enter(self, deliveries: Iterable[Delivery], now: float) -> None:
        """Note that `deliveries` are being sent."""
        self._turn += 1
        for delivery in deliveries:
            endpoint_id = delivery.endpoint_id
            self._sending[endpoint_id][delivery.id] = now
            self._busy[delivery.queue] += 1
            if delivery.failing_since is not None:
                self._failing.add(endpoint_id)
            self._turns.pop(endpoint_id, None)
            self._turns[endpoint_id] = self._turn
        while len(self._turns) > _TURNS_KEPT:
            del self._turns[next(iter(self._turns))]

    def leave(self, delivery: Delivery) -> None:
        """Note that it is not any more."""
        self._busy[delivery.queue] -= 1
        if not self._busy[delivery.queue]:
            del self._busy[delivery.queue]
        sending = self._sending[delivery.endpoint_id]
        sending.pop(delivery.id, None)
        if not sending:
            del self._sending[delivery.endpoint_id]
            self._failing.discard(delivery.endpoint_id)

    def heard(self, endpoint_id: Id, *, is_quick: bool) -> None:
        """Note whether an endpoint answered quickly."""
        if is_quick:
            self._quick.add(endpoint_id)
        else:
            self._quick.discard(endpoint_id)

    def _is_stuck(self, endpoint_id: Id, now: float) -> bool:
        # Whoever was quick before and lets us wait now is not asked more until he answers.
        return any(now - since > SLOW_S for since in self._sending.get(endpoint_id, {}).values())

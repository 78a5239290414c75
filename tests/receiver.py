"""A webhook receiver whose time limits grow with the load of the machine."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from cardledger.webhooks import receiver
from cardledger.webhooks.receiver import Arrival
from tests.waiting import LIMIT_S, Deadline


class Receiver(receiver.Receiver):
    """The product's receiver with the time limits of tests."""

    @override
    def wait_for(
        self, enough: Callable[[Sequence[Arrival]], bool], *, timeout_s: float = LIMIT_S
    ) -> list[Arrival]:
        deadline = Deadline(timeout_s)
        while True:
            try:
                return super().wait_for(enough, timeout_s=0.5)
            except TimeoutError:
                if deadline.has_passed:
                    raise

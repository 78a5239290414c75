"""The history of a purchase for a page, folded on the event loop between other requests."""

from typing import Final

from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.http.in_flight import Turn
from cardledger.ledger.queries.console import purchase_history
from cardledger.ledger.queries.console.purchase_history import PurchaseHistory, UnfoldedHistory

_SHORT: Final = 200  # Events that are folded in some milliseconds.


async def folded(call: ConsoleContext, events: UnfoldedHistory) -> PurchaseHistory:
    """Return the history of a purchase of the platform that has requested the page.

    One long history of a platform is folded at a time: pages of others wait for one at most.
    Raises: ApiError RATE_LIMITED when too many wait.
    """
    steps = purchase_history.fold(events)
    if len(events.rows) <= _SHORT:
        return await call.services.loop_turns.run(steps)
    async with call.services.turns.take(Turn(f"histories of {call.platform_id}", at_once=1)):
        return await call.services.loop_turns.run(steps)

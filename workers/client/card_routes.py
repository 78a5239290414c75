"""Which customer and shard an event belongs to, mostly from memory."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import UNROUTED, CardRoute, Owner
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.ids import Id
from cardledger.workers.client.parsing import Submission

_CACHE_LIMIT: Final = 200_000  # Cards, at about 200 bytes each.


class CardRoutes:
    """A cache of the routes of cards, which never change."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._autocommit: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._routes: Final[dict[Id, CardRoute]] = {}

    async def get(self, card_id: Id, *, platform_id: Id) -> CardRoute | None:
        """Return the route of the platform's card; None when it has no such card.

        A card of another platform is queried like one that does not exist, though it may be
        cached: the time of the response must not tell them apart.
        """
        route = self._routes.get(card_id)
        if route is None or route.owner.platform_id != platform_id:
            async with self._autocommit.connect() as outer:
                loaded = await inbox.routes_of(await driver_async(outer), [card_id])
            self._keep(loaded)
            route = loaded.get(card_id)
        return route if route is not None and route.owner.platform_id == platform_id else None

    async def load(
        self, connection: AsyncConnection[Any], card_ids: Iterable[Id]
    ) -> Mapping[Id, CardRoute]:
        """Return the routes of the cards that exist; those of unknown cards are queried each time.

        The result is the caller's own: the cache may be cleared while the query is awaited.
        """
        wanted = set(card_ids)
        routes = {key: self._routes[key] for key in wanted if key in self._routes}
        if unknown := wanted - routes.keys():
            loaded = await inbox.routes_of(connection, unknown)
            self._keep(loaded)
            routes.update(loaded)
        return routes

    def _keep(self, loaded: Mapping[Id, CardRoute]) -> None:
        if len(self._routes) > _CACHE_LIMIT:
            self._routes.clear()
        self._routes.update(loaded)

    @staticmethod
    async def owner_of(
        connection: AsyncConnection[Any],
        submission: Submission,
        routes: Mapping[Id, CardRoute],
    ) -> Owner:
        """Return the owner of an event; `routes` has its card, if the card exists.

        An event for an unknown card or account, or for one of another platform, is unrouted: the
        engine rejects it.
        """
        card_id = submission.card_id
        if card_id:
            route = routes.get(card_id)
            owner = route.owner if route else None
        else:
            account_id = Id.parse(submission.body["accountId"])
            owner = await inbox.owner_of_account(connection, account_id)
        if owner and submission.platform_id in {None, owner.platform_id}:
            return owner
        return Owner(UNROUTED.customer_id, submission.platform_id or UNROUTED.platform_id)

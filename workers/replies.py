"""Outcomes for whoever waits: a copy over Redis, at once. The record has them as well."""

from collections import defaultdict
from collections.abc import Iterable
from json import dumps
from typing import Any, Final
from uuid import UUID

import redis
import structlog

from ledger import roll_up
from ledger.batch import Decided
from schema.wire.outcomes import Outcome

_KEPT_S: Final = 60  # A list whose reader has died goes away by itself.

_log = structlog.get_logger()


def outcome(decided: Decided) -> Outcome:
    """Return `decided` as its sender sees it."""
    return Outcome(
        reference=decided.message.reference,
        outcome=decided.outcome,
        reason=decided.reason,
        detail=decided.detail,
        first_outcome=decided.first_outcome,
        card_transaction=roll_up.render(decided.roll_up) if decided.roll_up else None,
    )


def send(client: redis.Redis, decided: Iterable[Decided]) -> None:
    """Send every outcome that somebody waits for; when Redis is away, they look it up."""
    lists: dict[str, list[tuple[UUID, dict[str, Any]]]] = defaultdict(list)
    for one in decided:
        if one.message.reply_to:
            lists[one.message.reply_to].append((one.message.id, outcome(one).wire()))
    if not lists:
        return
    pipeline = client.pipeline(transaction=False)
    for name, outcomes in lists.items():
        pipeline.rpush(name, dumps([(str(key), wire) for key, wire in outcomes]))
        pipeline.expire(name, _KEPT_S)
    try:
        pipeline.execute()
    except redis.RedisError as error:
        _log.warning("replies not sent: Redis is away", error=str(error))

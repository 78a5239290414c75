"""What is measured beside latencies: the memory of all processes, and the rows of a platform."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import psutil
import psycopg

from attack.judge import Measure
from cardledger.ledger.agents.device_codes import CODE_LIMIT
from cardledger.ledger.agents.registry import AGENT_LIMIT
from cardledger.ledger.cards.issuing import CARD_LIMIT
from cardledger.ledger.customers.beneficial_owners import OWNER_LIMIT
from cardledger.ledger.customers.external_accounts import (
    ACCOUNT_LIMIT as EXTERNAL_ACCOUNT_LIMIT,
)
from cardledger.ledger.customers.kyc_links import LINK_LIMIT
from cardledger.ledger.customers.uploads.registry import UNFINISHED_LIMIT
from cardledger.ledger.messaging.truncated_events import WHOLE_LIMIT
from cardledger.ledger.platforms.api_tokens import TOKEN_LIMIT
from cardledger.ledger.platforms.quotas import EVERY_PLATFORM
from cardledger.ledger.projections.accounts import ACCOUNT_LIMIT
from cardledger.ledger.webhooks.endpoints import ENDPOINT_LIMIT
from cardledger.ledger.webhooks.signing_keys import PUBLISHED_LIMIT, ROWS_LIMIT
from cardledger.schema.ids import Id

_MEGABYTE: Final = 1024 * 1024
_INTERVAL_S: Final = 1.0

REJECTED_BYTES: Final = 3 * WHOLE_LIMIT
"""Bytes that a rejection keeps of an event at most, whatever the event has in it."""

DOCUMENT_BYTES: Final = 256 * _MEGABYTE
"""`CARDLEDGER_DOCUMENT_BYTES` of the attacked system: so few that an attack reaches them."""

WAITING_DELIVERIES: Final = 10_000
"""`CARDLEDGER_WEBHOOK_WAITING_LIMIT` of the attacked system, for the same reason."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A number of rows that one platform may cause, and the most that it may be."""

    name: str
    query: str  # With the platform as its only parameter.
    limit: int


QUOTAS: Final = (
    Quota("tokens", "SELECT count(*) FROM api_tokens WHERE platform_id = %s", TOKEN_LIMIT),
    Quota(
        "agents",
        "SELECT count(*) FROM agents WHERE platform_id = %s AND deleted_at IS NULL",
        AGENT_LIMIT,
    ),
    Quota(
        "device codes of an agent",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM agent_device_codes c"
        " JOIN agents a ON a.id = c.agent_id WHERE a.platform_id = %s"
        " AND c.expires_at > now() GROUP BY c.agent_id) codes",
        CODE_LIMIT,
    ),
    Quota(
        "webhook endpoints",
        "SELECT count(*) FROM webhook_endpoints WHERE platform_id = %s AND deleted_at IS NULL",
        ENDPOINT_LIMIT,
    ),
    Quota(
        "cards of a cardholder",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM cards WHERE platform_id = %s"
        " AND state <> 'CLOSED' GROUP BY customer_id) cards",
        CARD_LIMIT,
    ),
    Quota(
        "external accounts of a customer",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM external_accounts"
        " WHERE platform_id = %s AND deleted_at IS NULL GROUP BY customer_id) accounts",
        EXTERNAL_ACCOUNT_LIMIT,
    ),
    Quota(
        "accounts of a customer",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM internal_accounts"
        " WHERE platform_id = %s GROUP BY customer_id) accounts",
        ACCOUNT_LIMIT,
    ),
    Quota(
        "owners of a business",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM beneficial_owners"
        " WHERE platform_id = %s GROUP BY customer_id) owners",
        OWNER_LIMIT,
    ),
    Quota(
        "links of a customer",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM kyc_links"
        " WHERE platform_id = %s GROUP BY customer_id) links",
        LINK_LIMIT,
    ),
    Quota(
        "uploads of customers in progress",
        "SELECT count(*) FROM customer_uploads WHERE platform_id = %s AND completed_at IS NULL",
        UNFINISHED_LIMIT,
    ),
    Quota(
        "bytes of documents",
        "SELECT coalesce(sum(bytes), 0) FROM document_usage WHERE platform_id = %s",
        DOCUMENT_BYTES,
    ),
    Quota(
        "published signing keys",
        "SELECT count(*) FROM webhook_signing_keys WHERE platform_id = %s AND former_until > now()",
        PUBLISHED_LIMIT,
    ),
    Quota(
        "signing keys",
        "SELECT count(*) FROM webhook_signing_keys WHERE platform_id = %s",
        ROWS_LIMIT,
    ),
    Quota(
        "deliveries of an event",
        "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM webhook_deliveries"
        " WHERE platform_id = %s GROUP BY webhook_id) deliveries",
        ENDPOINT_LIMIT,
    ),
    Quota(
        "bytes of a rejected event",
        "SELECT coalesce(max(octet_length(body)), 0) FROM rejections WHERE platform_id = %s",
        REJECTED_BYTES,
    ),
)

# Of each resource with a quota in the database, its own or that of every platform.
_ROW_QUOTAS: Final = """
    SELECT q.resource, q.rows, coalesce((
        SELECT sum(c.rows) FROM row_counts c
        WHERE c.platform_id = %(platform)s AND c.resource = q.resource
    ), 0)
    FROM (
        SELECT DISTINCT ON (resource) resource, rows FROM row_quotas
        WHERE platform_id IN (%(platform)s, %(every)s) ORDER BY resource, platform_id DESC
    ) q
"""


def rows(connection: psycopg.Connection[Any], platform_id: Id) -> list[Measure]:
    """Return a measure for each cap, and for each quota of rows that the database keeps."""
    measures = []
    values = {"platform": platform_id, "every": EVERY_PLATFORM}
    for resource, limit, count in connection.execute(_ROW_QUOTAS.encode(), values):
        name = f"rows: all {resource.replace('_', ' ')}"
        measures.append(Measure(name=name, value=int(count), limit=limit))
    for quota in QUOTAS:
        found = connection.execute(quota.query.encode(), [platform_id]).fetchone()
        assert found is not None
        measures.append(Measure(name=f"rows: {quota.name}", value=int(found[0]), limit=quota.limit))
    return measures


class Memory:
    """Samples the memory of processes once a second; keeps the largest sum since `restart`."""

    def __init__(self) -> None:
        """Measure nothing, until `restart`."""
        self._pids: Callable[[], Sequence[int]] = list
        self._stopping: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="memory", daemon=True)
        self._largest_mb = 0.0

    def __enter__(self) -> Self:
        """Begin to measure."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Measure no more."""
        self._stopping.set()
        self._thread.join()

    def restart(self, pids: Callable[[], Sequence[int]]) -> float:
        """Measure the processes `pids` and everything below them; return their memory now, in MB.

        The largest sum is that of the time to come.
        """
        self._pids = pids
        self._largest_mb = memory_mb(pids())
        return self._largest_mb

    def largest_mb(self) -> float:
        """Return the largest sum since `restart`, the present one included."""
        self._largest_mb = max(self._largest_mb, memory_mb(self._pids()))
        return self._largest_mb

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_S):
            self.largest_mb()


def memory_mb(pids: Iterable[int]) -> float:
    """Return the memory of the processes `pids` and of everything below them.

    Without what processes may share: programs, and the cache of PostgreSQL, whose size is fixed. A
    page of the cache counts as private of the session that was the first to use it, and resident in
    each that has used it.
    """
    processes: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            processes |= {one.pid: one for one in (process, *process.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue  # It has ended, or is being replaced.
    return sum(_private_mb(process) for process in processes.values())


def _private_mb(process: psutil.Process) -> float:
    try:
        memory = process.memory_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0
    return float(memory.rss - getattr(memory, "shared", 0)) / _MEGABYTE  # Not told by macOS.

"""`cardledger top`: live rates, depths and ages of a running system."""

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import Connection
from rich.console import Group
from rich.live import Live
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import CommandError
from cardledger.install import databases, discovery
from cardledger.ledger.queries import live_figures
from cardledger.ledger.queries.live_figures import Depth, Sample
from cardledger.ledger.storage.engines import driver, message_of, sync_engine
from cardledger.schema.wire.common import rfc3339

INTERVAL_S: Final = 1.0
STATEMENT_LIMIT_MS: Final = 500

_SETTINGS: Final = (
    f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_LIMIT_MS}ms"
)
_ALARMS: Final = frozenset({"forged", "queues stalled", "cardholders stalled", "exceptions"})
_LAST_DAY: Final = frozenset({"rejected", "forged"})
_LABEL: Final = 20


class WebhookRate:
    """Attempts to deliver webhooks a second, from a counter that is read again and again."""

    def __init__(self) -> None:
        self._counts: Final[deque[tuple[float, int]]] = deque()

    def add(self, now_s: float, count: int | None) -> float | None:
        """Note `count` at `now_s`; return the mean of the last ten seconds, None at first."""
        if count is None:
            return None
        if self._counts and count < self._counts[-1][1]:
            self._counts.clear()  # The statistics were reset.
        self._counts.append((now_s, count))
        while len(self._counts) > 2 and now_s - self._counts[1][0] >= live_figures.RATE_WINDOW_S:  # noqa: PLR2004 - two points make a rate
            self._counts.popleft()
        first_s, first = self._counts[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else None


def run(*, once: bool, as_json: bool, data_dir: Path | None) -> None:
    """Print a sample each second until Ctrl-C, or only one.

    Raises: CommandError when no system runs, or PostgreSQL fails.
    """
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    url = discovery.system(settings).database_url
    databases.check_schema(url)
    # Ctrl-C is how a person ends it.
    with suppress(KeyboardInterrupt), _connection(url) as connection:
        samples = _samples(connection)
        if once:
            samples = iter([next(samples)])
        if as_json:
            for sample, per_s, took_ms in samples:
                print(json.dumps(as_dict(sample, per_s, took_ms)), flush=True)
        else:
            _show(samples)


@contextmanager
def _connection(url: str) -> Iterator[Connection[Any]]:
    engine = sync_engine(url, keyed=True, settings=_SETTINGS)
    try:
        with engine.connect() as outer:
            connection = driver(outer)
            connection.autocommit = True
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.autocommit = False
    except (DBAPIError, psycopg.Error) as error:
        raise CommandError(f"PostgreSQL failed: {message_of(error)}") from None
    finally:
        engine.dispose()


_Measured = tuple[Sample, float | None, float]
"""A sample, webhook attempts a second, and how long the sample took in milliseconds."""


def _samples(connection: Connection[Any]) -> Iterator[_Measured]:
    """Yield a sample each second; the first after one second, since a rate needs two looks."""
    rate = WebhookRate()
    rate.add(time.monotonic(), live_figures.sample(connection).attempts)
    while True:
        time.sleep(INTERVAL_S)
        began = time.monotonic()
        sample = live_figures.sample(connection)
        per_s = rate.add(began, sample.attempts)
        yield sample, per_s, (time.monotonic() - began) * 1000


def as_dict(sample: Sample, webhooks_per_s: float | None, took_ms: float) -> dict[str, Any]:
    """Return `sample` as JSON."""
    return {
        "at": rfc3339(sample.at),
        "decisionsPerSecond": {
            outcome: round(per_s, 1) for outcome, per_s in sample.decisions_per_s.items()
        },
        "webhookAttemptsPerSecond": None if webhooks_per_s is None else round(webhooks_per_s, 1),
        "depths": {_camel(name): _depth(depth) for name, depth in sample.depths.items()},
        "missing": [_camel(name) for name in sample.missing],
        "sampleMs": round(took_ms, 1),
    }


def _depth(depth: Depth) -> dict[str, Any]:
    fields: dict[str, Any] = {"count": depth.count, "isCapped": depth.is_capped}
    return fields if depth.age_s is None else {**fields, "ageSeconds": round(depth.age_s, 3)}


def _camel(name: str) -> str:
    first, *others = name.split()
    return first + "".join(word.capitalize() for word in others)


# --- text --------------------------------------------------------------------------------------


def _show(samples: Iterator[_Measured]) -> None:
    out = terminal.console()
    if not out.is_terminal:
        for measured in samples:
            out.print(_text(*measured))
            out.print()
        return
    with Live(console=out, auto_refresh=False) as live:
        for measured in samples:
            live.update(_text(*measured), refresh=True)


def _text(sample: Sample, webhooks_per_s: float | None, took_ms: float) -> Group:
    """Return a sample in lines of at most 80 columns."""
    total = sum(sample.decisions_per_s.values())
    webhooks = "-" if webhooks_per_s is None else f"{webhooks_per_s:,.1f}"
    lines = [
        Text(f"{sample.at:%Y-%m-%d %H:%M:%S} UTC   sample {took_ms:.0f} ms", style="dim"),
        _line("decisions/s", f"{total:,.1f}"),
        *(
            _line(f"  {outcome.lower()}", f"{per_s:,.1f}")
            for outcome, per_s in sample.decisions_per_s.items()
        ),
        _line("webhook attempts/s", webhooks),
        *(_depth_line(name, depth) for name, depth in sample.depths.items()),
        *(
            Text(f"{name}: ended at the time limit of {STATEMENT_LIMIT_MS} ms", style="yellow")
            for name in sample.missing
        ),
    ]
    return Group(*lines)


def _depth_line(name: str, depth: Depth) -> Text:
    count = f"{depth.count:,}{'+' if depth.is_capped else ''}"
    age = "" if depth.age_s is None else f"   oldest {depth.age_s:,.1f} s"
    scope = "   in the last 24 h" if name in _LAST_DAY else ""
    return _line(name, count, f"{age}{scope}", is_alarm=bool(depth.count) and name in _ALARMS)


def _line(label: str, value: str, rest: str = "", *, is_alarm: bool = False) -> Text:
    style = "bold red" if is_alarm else "bold"
    return Text.assemble((f" {label:<{_LABEL}}", "cyan"), (f"{value:>12}", style), rest)

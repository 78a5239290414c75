"""Lines without colours: the same as those of structlog, which takes longer."""

import asyncio
import errno
import io
import json
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import structlog
from typing_extensions import override

from cardledger.config import logs
from cardledger.ledger.engine.failures import log_ids
from cardledger.ledger.messaging import canaries
from cardledger.ledger.messaging.inbox import Lane
from tests.waiting import limit_s

EVENTS: list[dict[str, Any]] = [
    {
        "timestamp": "2026-01-31T12:00:00.000000Z",
        "level": "info",
        "event": "request",
        "method": "POST",
        "path": "/cards",
        "status": 200,
        "duration_ms": 1.5,
    },
    {"level": "warning", "event": "longer than the thirty characters of a column", "logger": "a.b"},
    {"event": "logged by another library", "logger_name": "a.b"},
    {"level": "critical", "event": 7, "nothing": None, "some": {"a": [1]}},
    {"event": "odd", "empty": "", "blank": "a b", "pair": "a=b", "line": "a\nb", "quote": "a'b\"c"},
    {"event": "", "text": "é…\x1b\x00\t"},
    {"level": "error", "event": "broken", "exception": "Traceback\n  ValueError", "stack": "at"},
]


@pytest.mark.parametrize("event", EVENTS)
def test_a_plain_line_is_that_of_structlog(event: dict[str, Any]) -> None:
    theirs = structlog.dev.ConsoleRenderer(colors=False)

    assert logs.plain()(None, "info", dict(event)) == theirs(None, "info", dict(event))


def test_a_plain_line_brings_its_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        event = {"event": "a request failed", "exc_info": sys.exc_info()}

    line = str(logs.plain()(None, "error", event))

    assert line.startswith("a request failed")
    assert line.rstrip().endswith("ValueError: broken")


def test_a_line_about_a_message_names_its_event_and_its_purchase() -> None:
    message = canaries.canary((Lane.LIVE, 0), datetime.now(UTC))
    body = {"cardId": "Card:1", "issuerTransactionToken": "t" * 300, "amount": 7}
    event = replace(message, source="visa", reference="r-1", body=body)
    malformed: Any = ["Card:1"]

    assert log_ids(event) == {
        "message_id": str(message.id),
        "network_event": "visa/r-1",
        "card": "Card:1",
        "issuer_transaction_token": "t" * 200,
    }
    assert log_ids(replace(event, body=malformed)).keys() == {"message_id", "network_event"}


class Written(io.StringIO):
    """What was written, one text for each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    @override
    def flush(self) -> None:
        self.texts.append(self.getvalue())
        self.seek(0)
        self.truncate()


def test_lines_of_one_turn_of_the_loop_are_written_together() -> None:
    written = Written()
    lines = logs.Lines(written)

    async def act() -> None:
        lines.info("a")
        lines.info("b")
        await asyncio.sleep(0)
        lines.info("c")
        lines.warning("d")
        lines.info("e")
        await asyncio.sleep(0)

    asyncio.run(act())

    assert written.texts == ["a\nb\n", "c\nd\n", "e\n"]


def test_no_line_waits_for_a_loop_that_has_ended() -> None:
    written = Written()
    lines = logs.Lines(written)

    async def act(line: str) -> None:
        lines.info(line)

    asyncio.run(act("a"))
    asyncio.run(act("b"))
    lines.info("outside a loop")

    assert "".join(written.texts) == "a\nb\noutside a loop\n"


def test_the_last_lines_of_a_process_are_written(tmp_path: Path) -> None:
    script = (
        "import asyncio, structlog\n"
        "from cardledger.config import logs\n"
        "logs.configure('info', 'json')\n"
        "async def act(): structlog.get_logger().info('last', number=7)\n"
        "asyncio.run(act())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path
    )

    assert json.loads(done.stderr) == {
        "event": "last", "number": 7, "level": "info", "timestamp": ANY,
    }  # fmt: skip


class Broken(io.StringIO):
    """A stream on a full disk."""

    @override
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_logs_goes_on_when_nothing_can_be_written() -> None:
    lines = logs.Lines(Broken())

    async def act() -> None:
        lines.info("a")
        await asyncio.sleep(0)
        lines.warning("b")

    asyncio.run(act())
    lines.error("c")


def test_a_handler_of_a_signal_may_log_amid_a_line() -> None:
    class Interrupted(Written):
        @override
        def write(self, text: str) -> int:
            if "interrupted" not in text:
                lines.warning("interrupted")
            return super().write(text)

    written = Interrupted()
    lines = logs.Lines(written)
    thread = threading.Thread(target=lines.warning, args=("a",), daemon=True)

    thread.start()
    thread.join(limit_s(5))

    assert not thread.is_alive()
    assert sorted("".join(written.texts).splitlines()) == ["a", "interrupted"]


def test_what_logs_goes_on_when_a_line_cannot_be_rendered() -> None:
    class Value:
        @override
        def __repr__(self) -> str:
            raise RuntimeError

    render = logs.never_raising(logs.plain())

    line = render(None, "info", {"event": "x", "value": Value()})

    assert line == "a line could not be rendered: RuntimeError"

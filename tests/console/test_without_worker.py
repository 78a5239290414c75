"""An installation in which nothing decides."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx2
import psycopg

from cardledger.api.app import ApiConfig
from cardledger.api.console.html import formats
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from tests.api.support import new_tenant, server
from tests.console.person import Person, shown
from tests.console.rows import INBOX, OUTCOMES
from tests.waiting import eventually, limit_s

_STOPPED_AT: Final = datetime.now(UTC) - timedelta(hours=7)


def alert(page: str) -> str | None:
    """Return the text of the first alert that the server has written."""
    found = re.search(r'<div class="alert"(?:.*?)>(.*?)</div>', page, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", "", found[1]).split()) if found else None


def test_the_first_look_says_since_when_nothing_decides(
    config: ApiConfig, database_url: DatabaseUrl
) -> None:
    tenant, customer = new_tenant(config.database_url), new_id()
    last, oldest = _STOPPED_AT, _STOPPED_AT + timedelta(minutes=10)
    waiting = f"The oldest message has waited since {formats.clock(oldest)} UTC."
    decide, enqueue = (statement.replace("now()", "%s") for statement in (OUTCOMES, INBOX))
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(decide, [customer, tenant.platform_id, new_id(), last, 1])
        with server(config) as root, Person(root) as visitor:
            visitor.log_in(tenant)

            first = alert(shown(visitor.get("")))
            for queue, at in (("(0, 0", oldest + timedelta(minutes=5)), ("(0, 7", oldest)):
                values = [new_id(), customer, tenant.platform_id, queue, at]
                owner.execute(enqueue.replace("(0, 0", queue), values)
            later = eventually(
                lambda: page if waiting in (page := str(alert(shown(visitor.get(""))))) else None
            )
            unready = eventually(lambda: unready_since(root), timeout_s=30)

    decided = f"Last decision: {formats.clock(last)} UTC."
    assert first is not None
    assert "Nothing decides. No worker that decides is connected to PostgreSQL." in first
    assert decided in first
    assert "has waited" not in first
    assert decided in later
    assert datetime.fromisoformat(unready["since"]) == oldest
    seconds = re.search(r"no message was decided for (\d+) s", unready["detail"], re.IGNORECASE)
    assert seconds is not None
    assert int(seconds[1]) >= (datetime.now(UTC) - oldest).total_seconds() - 60


def unready_since(root: str) -> dict[str, str] | None:
    answer = httpx2.get(f"{root}/readyz", timeout=limit_s(4))
    failed: dict[str, dict[str, str]] = answer.json().get("details", {}).get("failedChecks", {})
    return failed.get("queues")

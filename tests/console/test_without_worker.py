"""An installation in which nothing decides."""

import re

from cardledger.api.app import ApiConfig
from tests.api.support import new_tenant, server
from tests.console.person import Person, shown
from tests.waiting import eventually


def test_the_overview_says_that_nothing_decides_and_since_when(config: ApiConfig) -> None:
    tenant = new_tenant(config.database_url)
    with server(config) as root, Person(root) as visitor:
        visitor.log_in(tenant)

        def alert() -> str | None:
            found = re.search(r'<div class="alert"(.*?)</div>', shown(visitor.get("")), re.DOTALL)
            return found[1] if found else None

        alerted = eventually(alert, timeout_s=30)

        assert "<b>Nothing decides.</b>" in alerted
        # A time as others, which shows the reader's own on hover.
        time = r'<time datetime="[^"]+Z" title="[^"]+Z">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</time>'
        assert re.search(rf"Since {time} UTC\. Check that workers", alerted)

"""Scenarios that mostly wait, run at the same time: together they take as long as the longest.

What waits for seconds is a limit of production that its test must not shorten, such as the silence
after which a worker counts as frozen. Each scenario has a database and processes of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from cardledger.embedded.servers import DatabaseUrl
from tests.databases import fresh_database

Scenario = Callable[[DatabaseUrl], None]


@contextmanager
def side_by_side(
    scenarios: Sequence[Scenario], postgres_url: DatabaseUrl, template: DatabaseUrl
) -> Iterator[dict[str, Future[None]]]:
    """Start `scenarios`, each with the owner's URL of a database copied from `template`."""

    def run(scenario: Scenario) -> None:
        with fresh_database(postgres_url, template=template.database) as url:
            scenario(url)

    with ThreadPoolExecutor(len(scenarios)) as pool:
        yield {scenario.__name__: pool.submit(run, scenario) for scenario in scenarios}

"""Engines: the order of their pooled connections, and the encoding of all."""

import asyncio

from sqlalchemy import text

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine, driver, driver_async, sync_engine
from cardledger.schema import connections


def test_a_thread_gets_the_connection_that_was_used_last(app_database_url: DatabaseUrl) -> None:
    engine = sync_engine(app_database_url, pool_size=2)
    with engine.connect() as first, engine.connect():
        last = driver(first)  # Given back after the second.
    found = []
    for _ in range(2):
        with engine.connect() as connection:
            found.append(driver(connection))
    engine.dispose()

    assert found == [last, last]


def test_an_event_loop_gets_the_connection_that_was_used_last(
    app_database_url: DatabaseUrl,
) -> None:
    async def used() -> list[object]:
        engine = async_engine(app_database_url, pool_size=2)
        async with engine.connect() as first, engine.connect():
            last = await driver_async(first)
        found: list[object] = [last]
        for _ in range(2):
            async with engine.connect() as connection:
                found.append(await driver_async(connection))
        await engine.dispose()
        return found

    last, *found = asyncio.run(used())

    assert found == [last, last]


def test_texts_are_in_utf_8_whatever_the_url_says(app_database_url: DatabaseUrl) -> None:
    separator = "&" if "?" in app_database_url else "?"
    url = f"{app_database_url}{separator}client_encoding=latin1"
    engine = sync_engine(url)

    with engine.connect() as connection:
        assert connection.scalar(text("SHOW client_encoding")) == "UTF8"
    with connections.connect(url) as plain:
        assert plain.info.encoding == "utf-8"
    engine.dispose()

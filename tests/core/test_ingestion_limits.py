"""What a platform may have in progress: large bodies, and events without an outcome."""

import asyncio

import pytest

from cardledger.api.ingestion_limits import (
    FILES,
    FILES_OF_PLATFORM,
    RECENT_S,
    UNDECIDED,
    UNDECIDED_IN_ALL,
    UPLOADS,
    UPLOADS_OF_PLATFORM,
    FilesInProgress,
    TooManyEventsError,
    UndecidedEvents,
)
from cardledger.api.uploads.limits import CUSTOMERS_FILE, DOCUMENT_FILE, FORM_REST
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id

ADA, BOB = new_id(), new_id()
LIMIT = UNDECIDED[Lane.BULK]


def test_a_platform_has_a_share_of_the_files() -> None:
    files = FilesInProgress()
    for _ in range(FILES_OF_PLATFORM):
        files.begin(ADA)

    with pytest.raises(TooManyEventsError, match="this platform"):
        files.begin(ADA)
    for number in range(FILES - FILES_OF_PLATFORM):
        files.begin(BOB if number < FILES_OF_PLATFORM else new_id())
    with pytest.raises(TooManyEventsError):
        files.begin(new_id())

    files.end(ADA)
    files.begin(ADA)


def test_a_platform_has_a_share_of_the_bytes_of_uploads() -> None:
    uploads = FilesInProgress(limit=UPLOADS, of_platform=UPLOADS_OF_PLATFORM)
    document, customers = DOCUMENT_FILE + FORM_REST, CUSTOMERS_FILE + FORM_REST
    for _ in range(3):
        uploads.begin(ADA, document)

    with pytest.raises(TooManyEventsError, match="this platform"):
        uploads.begin(ADA, document)
    uploads.begin(BOB, customers)
    with pytest.raises(TooManyEventsError, match="all platforms"):
        uploads.begin(new_id(), document)

    uploads.end(BOB, customers)
    uploads.begin(new_id(), customers)


def test_events_have_their_places_until_they_are_decided() -> None:
    async def scenario() -> None:
        undecided, loop = UndecidedEvents(), asyncio.get_running_loop()
        outcomes = [loop.create_future() for _ in range(LIMIT)]
        with undecided.reserve(ADA, Lane.BULK, LIMIT) as room:
            room.take(outcomes)

        with pytest.raises(TooManyEventsError, match=f"{LIMIT} events"):
            undecided.reserve(ADA, Lane.BULK, 1)
        with undecided.reserve(BOB, Lane.BULK, LIMIT), undecided.reserve(ADA, Lane.LIVE, 1):
            pass
        outcomes[0].set_result(None)
        outcomes[1].cancel()
        await asyncio.sleep(0)
        with undecided.reserve(ADA, Lane.BULK, 2):
            pass

    asyncio.run(scenario())


def test_places_of_events_that_were_not_accepted_are_free_again() -> None:
    undecided = UndecidedEvents()

    with pytest.raises(ValueError, match="lost"), undecided.reserve(ADA, Lane.BULK, LIMIT):
        raise ValueError("lost")

    with undecided.reserve(ADA, Lane.BULK, LIMIT):
        pass


def test_live_events_that_wait_for_long_do_not_stop_the_events_of_others() -> None:
    """Sixty of one locked cardholder had every other one of the platform refused."""

    async def scenario() -> None:
        now, loop = 100.0, asyncio.get_running_loop()
        limit, in_all = UNDECIDED[Lane.LIVE], UNDECIDED_IN_ALL[Lane.LIVE]
        undecided = UndecidedEvents(clock=lambda: now)
        outcomes: list[asyncio.Future[None]] = []
        for _ in range(in_all // limit):
            outcomes = [loop.create_future() for _ in range(limit)]
            with undecided.reserve(ADA, Lane.LIVE, limit) as room:
                room.take(outcomes)
            with pytest.raises(TooManyEventsError, match=f"{limit} events"):
                undecided.reserve(ADA, Lane.LIVE, 1)
            now += RECENT_S + 1

        with pytest.raises(TooManyEventsError, match=f"of {in_all} at most"):
            undecided.reserve(ADA, Lane.LIVE, limit)
        outcomes[0].set_result(None)
        await asyncio.sleep(0)
        rest = in_all % limit + 1
        with undecided.reserve(ADA, Lane.LIVE, rest):
            pass

    asyncio.run(scenario())

from collections.abc import Iterator

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit.verification import verify
from cardledger.ledger.storage.engines import sync_engine


@pytest.fixture(scope="module", autouse=True)
def books(root: str, database_url: DatabaseUrl) -> Iterator[None]:  # noqa: ARG001 - first the server
    """Prove the books once everything has happened."""
    yield
    engine = sync_engine(database_url)
    report = verify(engine)
    engine.dispose()
    assert report.holds, report.differences

"""Uses of tokens, written beside hashes that cannot be replaced."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import IntegrityError

from cardledger.api.app import ApiConfig
from cardledger.api.http.last_use import LastUses
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets import secret_hashes
from cardledger.ledger.storage.secrets.secret_hashes import TOKEN_SECRET, Rehash
from tests.api.support import new_tenant
from tests.waiting import eventually


def test_a_hash_that_cannot_be_replaced_loses_no_use(
    api_config: ApiConfig, database_url: DatabaseUrl
) -> None:
    tenant = new_tenant(database_url)
    with psycopg.connect(database_url, autocommit=True) as observer:

        def token() -> tuple[Any, ...]:
            query = "SELECT id, secret_hash, last_used_at FROM api_tokens WHERE client_id = %s"
            [row] = observer.execute(query, [tenant.client_id]).fetchall()
            return tuple(row)

        token_id, stored, _ = token()
        # PostgreSQL refuses it: the column is NOT NULL.
        irreplaceable = Rehash(TOKEN_SECRET, token_id, stored, None)  # type: ignore[arg-type]
        at = datetime.now(UTC)

        async def run() -> None:
            engine = async_engine(api_config.database_url)
            try:
                with pytest.raises(IntegrityError):
                    async with engine.begin() as connection:
                        await secret_hashes.replace(connection, irreplaceable)
                async with LastUses(engine, lambda: at, pause_s=0) as uses:
                    uses.replace_hash(irreplaceable)
                    uses.note(token_id)
                    await asyncio.to_thread(eventually, lambda: token()[2] == at)
            finally:
                await engine.dispose()

        asyncio.run(run())

        assert token()[1] == stored

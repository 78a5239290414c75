"""The API goes by PostgreSQL's clock, whatever that of its process says."""

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from cardledger.api import app as api_app
from cardledger.api.app import ApiConfig, create_app
from tests.api.support import Api, new_tenant, serving, url_of
from tests.api.test_quotes import payer_of

_DAY = timedelta(days=1)


@pytest.mark.parametrize("ahead", [_DAY, -_DAY], ids=["ahead", "behind"])
def test_a_price_is_promised_by_the_clock_of_postgresql(
    api_config: ApiConfig, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Wrong":
            return cls.fromtimestamp(datetime.now(UTC).timestamp(), tz) + ahead

    monkeypatch.setattr(api_app, "datetime", Wrong)
    tenant = new_tenant(api_config.database_url, currencies=("USD", "EUR"))
    before = datetime.now(UTC)

    with serving(create_app(api_config)) as served, Api(url_of(served), tenant) as own:
        ready = own.http.get(f"{own.root}/readyz")
        payer = payer_of(own, balance=0)
        quote = payer.quote(payer.eur)

    assert ready.status_code == 503, "it says that its own clock is wrong"
    created, expires = (datetime.fromisoformat(quote[name]) for name in ("createdAt", "expiresAt"))
    assert before - timedelta(minutes=1) < created < datetime.now(UTC) + timedelta(minutes=1)
    assert timedelta() < expires - created < timedelta(hours=1)

"""The exchange rates of an installation: loaded from files, append-only, used by every platform."""

import asyncio
import json
import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.exchange import rates
from cardledger.ledger.exchange.rates import Pair, Pricing
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from tests.command_process import run_command
from tests.system.support import environment

FILE = """
source = "Our bank, {day}"
base = "USD"
[rates]
EUR = {eur}
JPY = 150.27
"""
PRICING = Pricing(reference=None, spread_bps=0, with_own=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "first.toml").write_text(FILE.format(day="Monday", eur="0.8"))
    (tmp_path / "second.toml").write_text(FILE.format(day="Tuesday", eur="0.5"))
    return tmp_path


def command(url: DatabaseUrl, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("rates", *arguments, env=environment(DATABASE_URL=url), cwd=folder)


def price(url: DatabaseUrl, source: str, destination: str) -> Decimal | None:
    """Return the price of a pair for a platform without rates of its own."""

    async def read() -> Decimal | None:
        engine = async_engine(url)
        async with engine.connect() as connection:
            known = await rates.read(
                connection,
                [Pair(source, destination)],
                platform_id=new_id(),
                pricing=PRICING,
                at=datetime.now(UTC),
            )
        await engine.dispose()
        found = known.rate(source, destination)
        return None if found is None else found.price

    return asyncio.run(read())


def test_the_newest_file_counts_and_the_others_stay_in_the_record(
    app_database_url: DatabaseUrl, database_url: DatabaseUrl, folder: Path
) -> None:
    empty = command(app_database_url, folder, "list")
    assert price(app_database_url, "USD", "EUR") is None

    first = command(app_database_url, folder, "load", "first.toml")
    assert price(app_database_url, "USD", "EUR") == Decimal("1.25")
    second = command(app_database_url, folder, "load", "second.toml", "--json")
    assert price(app_database_url, "USD", "EUR") == 2
    assert price(app_database_url, "EUR", "USD") == Decimal("0.5")
    listed = command(app_database_url, folder, "list", "--json")

    assert empty.stdout.startswith("none: ")
    assert first.stdout == "2 rates for one USD, from Our bank, Monday\n"
    assert json.loads(second.stdout) == {
        "loaded": 2,
        "base": "USD",
        "source": "Our bank, Tuesday",
    }
    eur, jpy = json.loads(listed.stdout)
    assert (eur["destinationCurrency"], eur["rate"], eur["source"]) == (
        "EUR",
        "0.5",
        "Our bank, Tuesday",
    )
    assert (jpy["numerator"], jpy["denominator"]) == (15027, 100)
    assert jpy["recordedBy"] == app_database_url.role
    with psycopg.connect(database_url) as owner:
        assert owner.execute("SELECT count(*) FROM exchange_rates").fetchone() == (4,)
        with pytest.raises(psycopg.Error, match="append-only"):
            owner.execute("UPDATE exchange_rates SET numerator = 1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (FILE.format(day="x", eur="0"), "rates.EUR must be from"),
        (FILE.format(day="x", eur="1\nZZZ = 2"), "ZZZ: not a currency of this installation"),
        ("nothing", "not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(
    app_database_url: DatabaseUrl, folder: Path, content: str, words: str
) -> None:
    (folder / "wrong.toml").write_text(content)

    refused = command(app_database_url, folder, "load", "wrong.toml")
    missing = command(app_database_url, folder, "load", "nowhere.toml")

    assert refused.returncode == missing.returncode == 2
    assert words in refused.stderr
    assert "cannot read nowhere.toml" in missing.stderr

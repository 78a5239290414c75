"""Revisions 0035 to 0039: older entries get their dates, and nothing else of them changes."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import migrate
from tests.databases import fresh_database
from tests.migration_rules import revisions

MONEY: Final = (
    "subject_id, sequence, line, customer_id, debit_account_id, credit_account_id, amount,"
    " account_id, account_version, balance_after, recorded_at"
)
PAGES: Final = 11_000
"""Entries, of which 5000 are filled in at a time."""


@pytest.fixture
def url(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database of the previous release."""
    with fresh_database(postgres_url) as made:
        migrate.upgrade(made, "0034")
        yield made
        migrate.downgrade(made, "base")


@pytest.fixture
def owner(url: DatabaseUrl) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def book(
    connection: psycopg.Connection[Any], recorded_at: str, occurred_at: str | None = None
) -> object:
    """Add an entry as a worker of the previous release does; return its subject."""
    key = new_id()
    connection.execute(
        f"INSERT INTO entries ({MONEY}) SELECT %s, %s, 0, %s, gen_random_uuid(), gen_random_uuid(),"
        " 5, NULL, NULL, NULL, %s".encode(),
        [key, 0 if occurred_at is None else 1, key, recorded_at],
    )
    if occurred_at is not None:
        connection.execute(
            "INSERT INTO card_transaction_events (card_transaction_id, sequence, customer_id, kind,"
            " amount, message_id, occurred_at, recorded_at)"
            " VALUES (%s, 1, %s, 'PULLED', 5, %s, %s, %s)",
            [key, key, key, occurred_at, recorded_at],
        )
    return key


def dates(connection: psycopg.Connection[Any], key: object) -> Any:  # noqa: ANN401 - a row
    return connection.execute(
        "SELECT occurred_at, posted_on FROM entries WHERE subject_id = %s", [key]
    ).fetchone()


def first_open_day(connection: psycopg.Connection[Any]) -> object:
    [(day,)] = connection.execute("SELECT first_open_day FROM books").fetchall()
    return day


def test_older_entries_get_the_dates_of_their_events(
    url: DatabaseUrl, owner: psycopg.Connection[Any]
) -> None:
    deposit = book(owner, "2026-09-03T23:59:59Z")
    before = book(owner, "2026-09-05T08:00:00Z", "2026-09-04T22:00:00-05:00")
    settled = book(owner, "2026-09-05T08:00:00Z", "2026-09-03T10:00:00Z")
    ancient = book(owner, "2026-09-05T08:00:00Z", "2019-01-01T00:00:00Z")
    future = book(owner, "2026-09-05T08:00:00Z", "2039-01-01T00:00:00Z")

    migrate.upgrade(url)

    assert first_open_day(owner) == date(2026, 9, 1)
    assert dates(owner, deposit) == (
        datetime(2026, 9, 3, 23, 59, 59, tzinfo=UTC),
        date(2026, 9, 3),
    )
    assert dates(owner, before) == (datetime(2026, 9, 5, 3, tzinfo=UTC), date(2026, 9, 5))
    assert dates(owner, settled)[1] == date(2026, 9, 3)
    assert dates(owner, ancient) == (datetime(2019, 1, 1, tzinfo=UTC), date(2026, 9, 1))
    assert dates(owner, future) == (datetime(2039, 1, 1, tzinfo=UTC), date(2026, 9, 5))


def test_a_new_installation_is_open_from_this_month_on(
    url: DatabaseUrl, owner: psycopg.Connection[Any]
) -> None:
    migrate.upgrade(url)

    assert first_open_day(owner) == datetime.now(UTC).date().replace(day=1)


def test_entries_are_filled_in_page_by_page_and_their_money_stays(
    url: DatabaseUrl, owner: psycopg.Connection[Any]
) -> None:
    owner.execute(
        f"INSERT INTO entries ({MONEY}) SELECT gen_random_uuid(), 0, 0, gen_random_uuid(),"
        " gen_random_uuid(), gen_random_uuid(), n, NULL, NULL, NULL,"
        f" '2026-09-01T00:00:00Z'::timestamptz + n * interval '1 minute'"
        f" FROM generate_series(1, {PAGES}) n".encode()
    )
    checksum = f"SELECT md5(string_agg(({MONEY})::text, ',' ORDER BY subject_id)) FROM entries"
    before = owner.execute(checksum.encode()).fetchall()
    lines: list[str] = []

    migrate.upgrade(url, progress=lines.append)

    assert owner.execute(checksum.encode()).fetchall() == before
    wrong = owner.execute(
        "SELECT count(*) FROM entries WHERE occurred_at IS DISTINCT FROM recorded_at"
        " OR posted_on IS DISTINCT FROM (recorded_at AT TIME ZONE 'UTC')::date"
    ).fetchone()
    assert wrong == (0,)
    changed = [line for line in lines if line.endswith("rows changed")]
    # Later revisions change rows, too.
    assert changed[:3] == ["5000 rows changed", "10000 rows changed", f"{PAGES} rows changed"]


def test_a_worker_of_the_previous_release_books_beside_the_new_schema(
    url: DatabaseUrl, owner: psycopg.Connection[Any]
) -> None:
    for revision in ("0036", "0037", "0038", "0039"):
        migrate.upgrade(url, revision)

        with owner.transaction():
            key = book(owner, "now")
            [(now,)] = owner.execute("SELECT now()").fetchall()

        if revision >= "0038":
            assert dates(owner, key) == (now, now.astimezone(UTC).date())


def test_a_system_account_of_each_new_kind_is_opened_where_there_are_others(
    url: DatabaseUrl, owner: psycopg.Connection[Any]
) -> None:
    platform = new_id()
    owner.execute(
        "INSERT INTO platforms (id, name, supported_currencies, signing_key, public_key,"
        " webhook_secret, created_at, updated_at) VALUES (%s, 'p', '{USD}', '', '', '', now(),"
        " now())",
        [platform],
    )
    owner.execute(
        "INSERT INTO system_accounts SELECT gen_random_uuid(), %s, c, 'CARD_HOLDS'"
        " FROM unnest(ARRAY['EUR', 'USD']) c",
        [platform],
    )

    def kinds() -> list[tuple[Any, ...]]:
        return owner.execute(
            "SELECT currency, string_agg(kind, ' ' ORDER BY kind) FROM system_accounts"
            " GROUP BY currency ORDER BY currency"
        ).fetchall()

    migrate.upgrade(url)
    found = (
        "CARD_HOLDS FX INBOUND_CLEARING INTERCHANGE NETWORK_FEES OUTBOUND_CLEARING"
        " SETTLEMENT_BANK SUSPENSE"
    )
    assert kinds() == [("EUR", found), ("USD", found)]

    migrate.downgrade(url, "0034")
    assert kinds() == [("EUR", "CARD_HOLDS"), ("USD", "CARD_HOLDS")]


def test_while_dates_are_filled_in_nothing_else_of_an_entry_can_be_changed(
    url: DatabaseUrl, owner: psycopg.Connection[Any]
) -> None:
    old = book(owner, "2026-09-03T23:59:59Z")
    migrate.upgrade(url, "0038")
    new = book(owner, "2026-11-03T23:59:59Z")
    [last] = [each.module for each in revisions() if each.revision == "0039"]

    owner.execute(last._LET_DATES_IN)
    fill = "UPDATE entries SET occurred_at = recorded_at, posted_on = '2026-09-03'"
    for change in (
        f"{fill}, amount = 6 WHERE subject_id = '{old}'",
        f"{fill} WHERE subject_id = '{new}'",
        "UPDATE entries SET recorded_at = now()",
        "DELETE FROM entries",
        "TRUNCATE entries",
    ):
        with pytest.raises(errors.InsufficientPrivilege, match="append-only"):
            owner.execute(change.encode())
    with pytest.raises(errors.CheckViolation):
        owner.execute(f"UPDATE entries SET posted_on = now() WHERE subject_id = '{old}'".encode())
    migrate.upgrade(url)  # As after an interruption.

    assert dates(owner, old)[1] == date(2026, 9, 3)
    with pytest.raises(errors.InsufficientPrivilege, match="append-only"):
        owner.execute("UPDATE entries SET posted_on = posted_on")
    triggers = owner.execute(
        "SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'entries'::regclass"
    ).fetchall()
    assert sorted(triggers) == [("append_only", "A"), ("closed_day", "A")]

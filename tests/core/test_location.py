"""The PostgreSQL schema in a connection URL: read, set, and understood by every driver."""

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import location

PLAIN = "postgresql://ada:secret@db:5432/ledger"


def test_a_url_without_a_schema_is_for_the_default_one() -> None:
    assert location.name_in(PLAIN) == "cardledger"
    assert location.name_in(location.with_default(PLAIN)) == "cardledger"


@pytest.mark.parametrize(
    "url",
    [PLAIN, f"{PLAIN}?sslmode=require", f"{PLAIN}?host=%2Frun%2Fpg&options=-c%20work_mem%3D8MB"],
)
def test_libpq_and_sqlalchemy_read_the_schema_that_was_set(url: str) -> None:
    named = location.with_name(url, "books")

    assert location.name_in(named) == "books"
    assert "-c search_path=books" in str(conninfo_to_dict(named)["options"])
    assert "-c search_path=books" in str(make_url(named).query["options"])


def test_naming_a_schema_keeps_other_options_and_parameters_of_a_url() -> None:
    url = f"{PLAIN}?options=-csearch_path%3Dold%20-c%20work_mem%3D8MB&sslmode=require"

    named = location.with_name(url, "books")

    assert location.name_in(url) == "old"
    assert location.options_in(named) == "-c work_mem=8MB -c search_path=books"
    assert conninfo_to_dict(named)["sslmode"] == "require"


def test_setting_the_schema_twice_is_setting_it_once() -> None:
    once = location.with_name(PLAIN, "books")

    assert location.with_name(once, "books") == once
    assert location.with_default(once) == once


@pytest.mark.parametrize("name", ["", "Books", "a b", "x;drop", "pg_toast", "1st", 'a"b', "a" * 60])
def test_a_name_that_would_need_quotes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a schema is named"):
        location.with_name(PLAIN, name)


def test_a_database_url_names_the_schema_and_hides_it_from_people() -> None:
    url = DatabaseUrl("postgres://ada:secret@db/ledger?sslmode=require")

    assert url.schema == "cardledger"
    assert url.with_schema("books").with_database("other").schema == "books"
    assert url.redacted == "postgresql://ada@db/ledger?sslmode=require"


SEVERAL = "postgresql://ada:s%2Fe@h1:5432,[::1]:5433/ledger?target_session_attrs=read-write"


def test_a_database_url_may_name_several_hosts() -> None:
    url = DatabaseUrl(SEVERAL)

    other = url.with_user("o t", "p@s").with_database("books")

    assert (url.role, url.database) == ("ada", "ledger")
    named = conninfo_to_dict(other)
    assert (named["host"], named["port"]) == ("h1,::1", "5432,5433")
    assert (named["user"], named["password"], named["dbname"]) == ("o t", "p@s", "books")
    assert named["target_session_attrs"] == "read-write"
    assert "-c search_path=cardledger" in str(named["options"])


def test_sqlalchemy_takes_several_hosts_as_parameters() -> None:
    url = make_url(DatabaseUrl(SEVERAL).sqlalchemy)

    _, named = url.get_dialect()().create_connect_args(url)

    assert (named["host"], named["port"]) == ("h1,::1", "5432,5433")
    assert (named["user"], named["password"], named["dbname"]) == ("ada", "s/e", "ledger")


@pytest.mark.parametrize(
    "url", ["postgresql:///ledger", "postgresql://ada@/ledger?host=%2Frun", "postgresql://db"]
)
def test_what_a_url_leaves_out_stays_out(url: str) -> None:
    before, after = conninfo_to_dict(url), conninfo_to_dict(DatabaseUrl(url).with_schema("books"))

    assert after.pop("options") == "-c search_path=books"
    assert after == before


def test_no_password_is_shown_to_people() -> None:
    url = DatabaseUrl("postgresql://ada:one@h1,h2/ledger?password=two&sslmode=require")

    assert url.redacted == "postgresql://ada@h1,h2/ledger?sslmode=require"

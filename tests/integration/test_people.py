"""People are roles of PostgreSQL: `cardledger person`, and what their logins may do."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import people
from cardledger.schema import migrate, roles
from cardledger.schema.finance import VERSION
from cardledger.schema.roles import Right, Role
from tests.command_process import run_command
from tests.databases import PASSWORD, fresh_database
from tests.system.support import environment


@pytest.fixture(scope="module")
def owner(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database whose roles are named after it."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        yield url
        for person in people.listed(url):
            people.remove(url, person.name)
        migrate.downgrade(url, "base")


@pytest.fixture
def name(owner: DatabaseUrl) -> str:
    """A name that no other test, or another run on the same server, uses."""
    with psycopg.connect(owner) as connection:
        [(number,)] = connection.execute("SELECT 'p' || left(md5(gen_random_uuid()::text), 12)")
    return str(number)


def role_exists(url: str, name: str) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name])
        return found.fetchone() is not None


def changes(owner: str, name: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(owner) as connection:
        return connection.execute(
            "SELECT change, may, changed_by FROM person_changes WHERE name = %s ORDER BY id", [name]
        ).fetchall()


def test_a_person_logs_in_reads_the_books_and_is_who_the_database_says(
    owner: DatabaseUrl, name: str
) -> None:
    added = people.add(owner, name, [Right.PREPARE])

    with psycopg.connect(added.database_url) as connection:
        assert connection.execute("SELECT session_user").fetchone() == (name,)
        assert connection.execute("SELECT finance.version()").fetchone() == (VERSION,)
        may = [
            connection.execute(
                "SELECT pg_has_role(%s, 'USAGE')", [roles.name_in(owner, right)]
            ).fetchone()
            for right in Right
        ]
        assert may == [(True,), (False,)]
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SELECT FROM cardledger.entries")
    assert changes(owner, name) == [("ADDED", ["prepare"], owner.role)]


def test_a_person_who_runs_a_command_of_the_operator_learns_whose_login_it_needs(
    owner: DatabaseUrl, name: str
) -> None:
    added = people.add(owner, name, [Right.PREPARE])

    finished = run_command("verify", env=environment(DATABASE_URL=added.database_url))

    assert finished.returncode == 1
    assert f"role {name} may not read the tables of the ledger" in finished.stderr
    assert "set DATABASE_URL to the login of the operator" in finished.stderr


def test_a_person_cannot_become_another_one(owner: DatabaseUrl, name: str) -> None:
    people.add(owner, f"{name}-b", [Right.APPROVE])
    added = people.add(owner, f"{name}-a", [Right.PREPARE])

    with psycopg.connect(added.database_url, autocommit=True) as connection:
        for statement in ("SET ROLE {}", "SET SESSION AUTHORIZATION {}"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(sql.SQL(statement).format(sql.Identifier(f"{name}-b")))
        for group in (Role.APP, Role.WORKER, Right.APPROVE):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(
                    sql.SQL("SET ROLE {}").format(sql.Identifier(roles.name_in(owner, group)))
                )


def test_the_embedded_server_asks_people_for_their_password(
    postgres_url: DatabaseUrl, owner: DatabaseUrl, name: str
) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SHOW hba_file").fetchone()
    assert row is not None
    if not row[0].endswith("postgres.hba.conf"):
        pytest.skip("DATABASE_URL names a server with rules of its own")

    added = people.add(owner, name, [Right.APPROVE])

    assert added.is_asked
    for password in (None, "wrong"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(owner.with_user(name, password))
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(owner.with_user(roles.name_in(owner, Role.FINANCE)))
    # As before: the files of earlier releases name the logins of processes without a password.
    psycopg.connect(owner.with_user(roles.name_in(owner, Role.APP))).close()


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "Anna",
        "an na",
        'a"; DROP TABLE entries; --',
        "o'brien",
        "a" * 64,
        "\N{LATIN SMALL LETTER E WITH ACUTE}mile",
        "1st",
        "postgres",
        "pg_anna",
        "public",
        "none",
        "anna_app",
        "books_approve",
        "anna\n",
    ],
)
def test_a_name_that_is_no_name_is_refused_and_nothing_is_created(
    owner: DatabaseUrl, bad: str
) -> None:
    with pytest.raises(CommandError, match="cannot be the name of a person"):
        people.add(owner, bad, [Right.PREPARE])

    assert changes(owner, bad) == []


def test_the_longest_name_is_kept_whole(owner: DatabaseUrl, name: str) -> None:
    long = name.ljust(63, "x")

    added = people.add(owner, long, [*Right])

    with psycopg.connect(added.database_url) as connection:
        assert connection.execute("SELECT session_user").fetchone() == (long,)


def test_a_role_that_exists_is_left_alone(owner: DatabaseUrl, name: str) -> None:
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        with pytest.raises(CommandError, match="there is a role"):
            people.add(owner, name, [Right.PREPARE])
        with pytest.raises(CommandError, match="there is no person"):
            people.remove(owner, name)
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_a_person_is_added_once(owner: DatabaseUrl, name: str) -> None:
    first = people.add(owner, name, [Right.PREPARE])

    with pytest.raises(CommandError, match="there is a role"):
        people.add(owner, name, [Right.APPROVE])

    psycopg.connect(first.database_url).close()
    assert [person.may for person in people.listed(owner) if person.name == name] == [
        [Right.PREPARE]
    ]


def test_of_two_who_add_a_person_at_once_one_does(owner: DatabaseUrl, name: str) -> None:
    def add(right: Right) -> str:
        try:
            return people.add(owner, name, [right]).database_url
        except CommandError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        results = [*pool.map(add, Right)]

    [url] = [result for result in results if result.startswith("postgresql://")]
    [refusal] = [result for result in results if result != url]
    assert "there is a role" in refusal
    psycopg.connect(url).close()
    assert len(changes(owner, name)) == 1


def test_a_person_who_is_logged_in_is_removed_at_once(owner: DatabaseUrl, name: str) -> None:
    added = people.add(owner, name, [Right.PREPARE, Right.APPROVE])
    session = psycopg.connect(added.database_url, autocommit=True)

    people.remove(owner, name)

    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 1")
    assert not role_exists(owner, name)
    assert [change for change, _, _ in changes(owner, name)] == ["ADDED", "REMOVED"]
    with pytest.raises(CommandError, match="there is no person"):
        people.remove(owner, name)


def test_a_person_whom_others_have_given_rights_loses_the_login_and_those_here(
    owner: DatabaseUrl, name: str
) -> None:
    added = people.add(owner, name, [Right.PREPARE])
    role = sql.Identifier(name)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("CREATE TABLE cardledger.mine (id int)")
        connection.execute(sql.SQL("GRANT SELECT ON cardledger.mine TO {}").format(role))

        people.remove(owner, name)

        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(added.database_url)
        assert name not in {person.name for person in people.listed(owner)}
        assert role_exists(owner, name)
        connection.execute("DROP TABLE cardledger.mine")
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_who_may_not_create_roles_is_told_so(owner: DatabaseUrl, name: str) -> None:
    app = roles.name_in(owner, Role.APP)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(app), PASSWORD)
        )

    with pytest.raises(CommandError, match="use the login of the owner of the tables"):
        people.add(owner.with_user(app, PASSWORD), name, [Right.PREPARE])

    assert not role_exists(owner, name)


def test_the_commands_add_list_and_remove(owner: DatabaseUrl, name: str) -> None:
    env = environment(DATABASE_URL=owner)

    made = run_command(
        "person", "add", name, "--may", "approve", "--may", "prepare", "--json", env=env
    )
    without = run_command("person", "add", f"{name}x", env=env)
    wrong = run_command("person", "add", f"{name}x", "--may", "spend", env=env)
    found = run_command("person", "list", "--json", env=env)
    shown = run_command("person", "list", env=env)
    removed = run_command("person", "remove", name, env=env)
    again = run_command("person", "remove", name, env=env)

    added = json.loads(made.stdout)
    assert (made.returncode, added["name"], sorted(added["may"])) == (
        0,
        name,
        ["approve", "prepare"],
    )
    assert DatabaseUrl(added["databaseUrl"]).role == name
    assert (without.returncode, wrong.returncode) == (2, 2)
    assert "--may prepare" in without.stderr
    [listed] = [person for person in json.loads(found.stdout) if person["name"] == name]
    assert (listed["may"], listed["addedBy"]) == (["prepare", "approve"], owner.role)
    assert name in shown.stdout
    assert (removed.returncode, removed.stdout) == (0, f"{name} removed\n")
    assert again.returncode == 1
    assert "there is no person" in again.stderr
    assert not role_exists(owner, f"{name}x")


def test_changes_of_people_are_audited_and_cannot_be_changed(owner: DatabaseUrl, name: str) -> None:
    added = people.add(owner, name, [Right.PREPARE])
    people.remove(owner, name)
    del added

    with psycopg.connect(owner) as connection:
        rows = connection.execute(
            "SELECT action, person, detail FROM finance.audit WHERE subject = %s"
            " ORDER BY recorded_at",
            [name],
        ).fetchall()
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("UPDATE person_changes SET changed_by = 'x'")

    assert rows == [
        ("PERSON_ADDED", owner.role, {"may": ["prepare"]}),
        ("PERSON_REMOVED", owner.role, {"may": ["prepare"]}),
    ]

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest
import typer
from psycopg import sql
from sqlalchemy import NullPool
from typer.core import TyperGroup

from cardledger import __version__
from cardledger.commands import cli
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import migrate
from cardledger.schema.wire.network_event_schema import json_schema
from tests.proxy import proxy_to, through
from tests.system import support
from tests.system.support import environment, run

DOCS = Path(__file__).parents[2] / "docs"
_HEAVY = ("alembic", "fastapi", "psycopg", "pydantic", "redis", "sqlalchemy", "uvicorn")


def test_version_is_one_line() -> None:
    assert run("--version").stdout == f"cardledger {__version__}\n"


def test_help_names_every_command_in_whole_sentences() -> None:
    message = run("--help").stdout

    for command in (
        "demo",
        "up",
        "submit",
        "verify",
        "listen",
        "migrate",
        "doctor",
        "api",
        "worker",
        "transactions",
        "explain",
        "exceptions",
        "top",
        "trigger",
    ):
        assert re.search(rf"^  {command} +[A-Z].*\.$", message, re.MULTILINE), message


def test_the_document_of_the_interface_is_printed_as_it_is_checked_in() -> None:
    checked_in = DOCS / "openapi.json"

    assert run("openapi").stdout == checked_in.read_text(encoding="utf-8")


def test_the_schema_of_an_event_is_printed() -> None:
    assert json.loads(run("openapi", "--events").stdout) == json_schema()


def test_help_and_version_import_nothing_heavy() -> None:
    code = f"import sys, cardledger.commands.cli; sys.exit(bool({_HEAVY!r} & sys.modules.keys()))"
    code = code.replace(repr(_HEAVY), repr(set(_HEAVY)))

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _commands(command: Any, words: str = "") -> Iterator[tuple[str, list[str]]]:  # noqa: ANN401 - of Click
    """Yield the words that start each command, and its options."""
    if isinstance(command, TyperGroup):
        for name, part in command.commands.items():
            yield from _commands(part, f"{words} {name}".strip())
    else:
        options = [part for part in command.params if part.param_type_name == "option"]
        yield words, [name for part in options for name in (*part.opts, *part.secondary_opts)]


OPTIONS = dict(_commands(typer.main.get_command(cli.app)))
COMMANDS = list(OPTIONS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_usage_error_of_any_command_exits_with_2(command: str, tmp_path: Path) -> None:
    finished = run(*command.split(), "--no-such-option", env=environment(), cwd=tmp_path)

    assert finished.returncode == 2
    assert finished.stdout == ""
    assert "No such option" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("expire --at tomorrow", "--at tomorrow: not a time"),
        ("explain Card:x", "Card:x: neither a card transaction nor an event"),
        ("exceptions --after x", "--after x: not a cursor of this list"),
        ("exceptions --limit 0", "Invalid value for '--limit'"),
        ("transactions --since x", "--since x: not a time"),
        ("transactions --status PAID", "'PAID' is not one of"),
        ("trigger lottery", "no story lottery; the stories are tip, hotel"),
        ("trigger tip --card x", "--card x: not an id"),
        ("rejections retry", "name either rejections by ID, or a --reason"),
        ("rejections list --since x", "--since x: write it like"),
        ("platform list --no-such", "No such option"),
        ("submit /no/such/file", "cannot read /no/such/file"),
        ("listen --forward-to x", "--forward-to takes a URL"),
        ("worker --only both", "'both' is not one of"),
        ("breaks note nix --text known", "nix is not the id of a break"),
        ("webhooks show", "Missing argument"),
        ("webhooks show nix", "nix is not the id of a delivery or an endpoint"),
        ("webhooks test nix", "nix is not the id of a delivery or an endpoint"),
    ],
)
def test_a_wrong_value_exits_with_2(arguments: str, message: str, tmp_path: Path) -> None:
    env = environment(CARDLEDGER_DATA_DIR=str(tmp_path / "data"))

    finished = run(*arguments.split(), env=env, cwd=tmp_path)

    assert finished.returncode == 2, finished.stderr
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr


def test_the_page_of_commands_names_every_command_and_its_exit_codes() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `cardledger ([a-z -]+)`.*\|.*\| ([0-9, ]+) \|$", page, re.MULTILINE)

    assert {words for words, _ in rows} == set(COMMANDS)
    assert all({"0", "2"} <= set(codes.split(", ")) for _, codes in rows)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_written_in_lower_case(command: str) -> None:
    # typer takes the metavar for the name of an option whose parameter has the same letters.
    names = [name for name in OPTIONS[command] if not re.fullmatch("-[a-z]|--[a-z0-9-]+", name)]

    assert not names


def test_pages_call_commands_with_options_that_exist() -> None:
    called = [
        (page.name, line, OPTIONS[command], re.findall(r"(?<=\s)--[A-Za-z-]+", line))
        for page in [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")]
        for line in _CALL.findall(page.read_text(encoding="utf-8").replace("\\\n", ""))
        if (command := _command_of(line)) is not None
    ]
    wrong = [
        (page, line)
        for page, line, options, named in called
        if not {"--help", *options}.issuperset(named)
    ]

    assert len(called) > 100
    assert not wrong


_CALL: Final = re.compile(r"(?:^|[`\s])cardledger ([a-z]+[ `\n][^`\n#|]*)", re.MULTILINE)


def _command_of(line: str) -> str | None:
    """Return the command that `line` calls: its first words, without a default one of a group."""
    words = line.split()
    for count in (2, 1):
        if (command := " ".join(words[:count])) in OPTIONS:
            return command
    return {"close": "close prepare", "platform": "platform create"}.get(words[0])


def test_completion_offers_the_commands() -> None:
    script = (
        "import sys; from cardledger.commands.cli import main; sys.argv = ['cardledger']; main()"
    )
    env = environment(
        _CARDLEDGER_COMPLETE="complete_bash", COMP_WORDS="cardledger tr", COMP_CWORD="1"
    )

    finished = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )

    assert finished.stdout.split() == ["transactions", "trigger"]


@pytest.mark.parametrize(
    ("arguments", "env", "code", "message"),
    [
        (["up"], {"CARDLEDGER_PROT": "1"}, 2, "did you mean CARDLEDGER_PORT?"),
        (["up"], {"DATABASE_URL": "mysql://x"}, 2, "DATABASE_URL: must start with postgresql://"),
        (["up"], {"CARDLEDGER_SECRET_KEY": "short"}, 2, "CARDLEDGER_SECRET_KEY: "),
        (["up", "--ready-file", "/nowhere/at/all"], {}, 2, "there is no directory /nowhere/at"),
        (["up"], {"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, 1, "127.0.0.1:1/x"),
        (["api"], {}, 2, "set DATABASE_URL"),
        (["worker"], {"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, 2, "set REDIS_URL"),
        (["submit", "-"], {}, 1, "no system runs in "),
        (["submit", "/no/such/file"], {}, 2, "cannot read /no/such/file"),
        (
            ["submit", "--fail-on", "none", "--fail-on", "parked", "-"],
            {},
            2,
            "leave out the others",
        ),
        (["submit", "--fail-on", "parked", "--no-wait", "-"], {}, 2, "leave out --no-wait"),
        (["parked", "list", "--before", "x"], {}, 2, "x is not the id of a parked event"),
        (["verify"], {}, 1, "there is no database in "),
        (["verify"], {"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, 1, "does not answer"),
        (["migrate", "--sql", "--down", "base"], {}, 2, "leave out --down"),
        (["migrate", "--sql", "--finish"], {}, 2, "leave out --finish"),
        (["migrate", "--finish", "--down", "base"], {}, 2, "--finish and --down contradict"),
    ],
)
def test_an_error_that_the_user_can_fix_is_one_line(
    arguments: list[str], env: dict[str, str], code: int, message: str, tmp_path: Path
) -> None:
    given = {"CARDLEDGER_DATA_DIR": str(tmp_path / "data"), "CARDLEDGER_PORT": "0"} | env

    finished = run(*arguments, env=environment(**given))

    assert finished.returncode == code
    assert "Traceback" not in finished.stderr
    assert finished.stderr.startswith("cardledger: ")
    assert message in finished.stderr
    assert "short" not in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "code", "message"),
    [
        (["--part", "motor"], {}, 2, "unknown part motor; parts are floor, engine"),
        (["--json", "/no/such/place/x.json"], {}, 2, "cannot write /no/such/place/x.json"),
        (["--json", "/"], {}, 2, "cannot write /"),
        ([], {"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, 1, "127.0.0.1:1"),
    ],
)
def test_a_benchmark_that_cannot_run_says_so_in_one_line(
    arguments: list[str], env: dict[str, str], code: int, message: str, tmp_path: Path
) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        env=environment(CARDLEDGER_DATA_DIR=str(tmp_path / "data"), **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == code
    assert "Traceback" not in finished.stderr
    assert finished.stderr.startswith("cardledger: ")
    assert message in finished.stderr


def test_retry_names_an_id_that_is_no_rejection(postgres_url: DatabaseUrl) -> None:
    unknown = "01a203e9-5dc8-7280-aefc-017b6900d111"
    with support.own_database(postgres_url) as url:
        env = environment(DATABASE_URL=url, CARDLEDGER_SECRET_KEY="k" * 40)
        run("migrate", env=env)

        retried = run("rejections", "retry", unknown, env=env)

    assert retried.stdout == f"{unknown}: no such rejection\n0 enqueued again, 1 not\n"
    assert retried.returncode == 1


def test_migrate_goes_up_and_down_and_gives_the_application_its_password(
    postgres_url: DatabaseUrl,
) -> None:
    with support.own_database(postgres_url) as url:
        env = environment(DATABASE_URL=url, CARDLEDGER_APP_PASSWORD="a password of the role")
        before = run("doctor", "--json", env=env)

        first, second = run("migrate", env=env), run("migrate", env=env)
        role = sql.Literal(f"{url.database}_app")
        with psycopg.connect(url) as connection:
            kept = connection.execute(
                sql.SQL("SELECT rolpassword FROM pg_authid WHERE rolname = {}").format(role)
            ).fetchone()
        after = run("doctor", "--json", env=env)
        unasked = run("migrate", "--down", "base", env=env)
        kept_revision = run("migrate", env=env).stdout.splitlines()[0]
        down = run("migrate", "--down", "base", "--yes", env=env)

        assert (before.returncode, _states(before.stdout)["schema"]) == (1, "fail")
        assert (first.returncode, first.stdout.splitlines()[0]) == (
            0,
            f"schema none -> {migrate.head()}",
        )
        assert second.stdout.startswith(f"schema {migrate.head()}, as it was")
        # Where PostgreSQL trusts everybody, any password lets the role in and none is set.
        assert kept is not None
        assert kept[0] is None or kept[0].startswith("SCRAM-SHA-256$")
        states = _states(after.stdout)
        examined = ("schema", "application role", "append-only", "queue locks")
        assert {states[name] for name in examined} == {"ok"}
        assert states["workers"] == "warn"  # None was started.
        assert unasked.returncode == 2
        assert "say --yes" in unasked.stderr
        assert kept_revision.endswith("as it was")
        assert down.stdout == f"schema {migrate.head()} -> none\n"


def test_doctor_shows_stalled_queues_and_the_command_that_lists_their_errors(
    postgres_url: DatabaseUrl,
) -> None:
    stall = """
        INSERT INTO cardledger.stalled_queues VALUES (0, 3, %s,
            '00000000-0000-0000-0000-000000000000', NULL, 'division by zero', 1, now(), now())
    """
    with support.own_database(postgres_url) as url:
        env = environment(DATABASE_URL=url)
        run("migrate", env=env)
        findings = [_finding("stalls", env)]
        with psycopg.connect(url, autocommit=True) as connection:
            for is_whole_queue in (False, True):
                connection.execute(stall, [is_whole_queue])
                findings.append(_finding("stalls", env))
            command = re.fullmatch(r"psql -c '(.*)'", findings[-1]["fix"])
            assert command is not None
            listed = connection.execute(command[1].encode()).fetchall()

    assert [finding["state"] for finding in findings] == ["ok", "warn", "fail"]
    assert findings[1]["detail"].startswith("0 queue(s) and 1 cardholder(s) have internal errors")
    assert findings[2]["detail"].startswith("1 queue(s) and 1 cardholder(s) have internal errors")
    assert [row[4] for row in listed] == ["division by zero"] * 2


def test_doctor_examines_every_host_of_the_url_and_uses_the_one_that_answers(
    postgres_url: DatabaseUrl,
) -> None:
    with (
        support.own_database(postgres_url) as url,
        proxy_to(url) as proxy,
        socket.socket() as closed,  # A port that refuses connections.
    ):
        closed.bind(("127.0.0.1", 0))
        live, dead = (f"127.0.0.1:{port}" for port in (proxy.port, closed.getsockname()[1]))
        several = f"{through(url, proxy).replace(live, f'{dead},{live}')}"
        migrated = run("migrate", env=environment(DATABASE_URL=several))
        env = environment(DATABASE_URL=f"{several}&target_session_attrs=read-write")

        findings = json.loads(run("doctor", "--json", env=env).stdout)["findings"]

    refused, primary = (one for one in findings if one["name"].startswith("PostgreSQL host"))
    [schema] = [one for one in findings if one["name"] == "schema"]
    assert migrated.returncode == 0, migrated.stderr
    assert refused["state"] == "warn"
    assert refused["detail"].startswith(f"{dead} does not answer")
    assert (primary["state"], primary["detail"]) == ("ok", f"{live} is the primary")
    assert schema["state"] == "ok"


def _finding(name: str, env: dict[str, str]) -> dict[str, str]:
    findings = json.loads(run("doctor", "--json", env=env).stdout)["findings"]
    [finding] = [finding for finding in findings if finding["name"] == name]
    return dict(finding)


def test_migrate_prints_its_statements() -> None:
    printed = run("migrate", "--sql")

    assert printed.returncode == 0
    assert "CREATE TABLE" in printed.stdout
    assert "append_only" in printed.stdout


def test_a_platform_is_set_up_with_a_token(postgres_url: DatabaseUrl, tmp_path: Path) -> None:
    with support.own_database(postgres_url) as url:
        env = environment(
            DATABASE_URL=url,
            CARDLEDGER_SECRET_KEY="k" * 40,
            CARDLEDGER_DATA_DIR=str(tmp_path),
        )
        run("migrate", env=env)

        made = json.loads(run("platform", "Acme", env=env).stdout)

        assert made["clientId"].startswith("clid_")
        assert made["webhookPublicKey"].startswith("-----BEGIN PUBLIC KEY-----")
        with psycopg.connect(url) as connection:
            names = connection.execute("SELECT name FROM platforms").fetchall()
        assert names == [("Acme",)]


def test_a_database_of_an_installation_with_another_key_is_refused_and_not_changed(
    postgres_url: DatabaseUrl, tmp_path: Path
) -> None:
    with support.own_database(postgres_url) as url:
        theirs, ours = (
            environment(
                DATABASE_URL=url,
                CARDLEDGER_SECRET_KEY=key * 40,
                CARDLEDGER_DATA_DIR=str(tmp_path / key),
            )
            for key in "to"
        )
        run("migrate", env=theirs)
        run("platform", "Acme", env=theirs)

        def state() -> list[tuple[str | None, ...]]:
            with psycopg.connect(url) as connection:
                passwords = connection.execute(
                    "SELECT rolname, rolpassword FROM pg_authid"
                    " WHERE rolname LIKE current_database() || '%' ORDER BY 1"
                ).fetchall()
                return [*passwords, *connection.execute("SELECT name FROM platforms")]

        before = state()
        for arguments in (("up", "--port", "0"), ("platform", "Other")):
            refused = run(*arguments, env=ours)
            assert refused.returncode == 1, refused.stdout
            assert "created with another secret key: set CARDLEDGER_SECRET_KEY" in refused.stderr
        assert state() == before


def test_credentials_of_platforms_are_listed_recovered_and_revoked(
    postgres_url: DatabaseUrl, tmp_path: Path
) -> None:
    with support.own_database(postgres_url) as url:
        env = environment(
            DATABASE_URL=url,
            CARDLEDGER_SECRET_KEY="k" * 40,
            CARDLEDGER_DATA_DIR=str(tmp_path),
        )
        run("migrate", env=env)
        acme = json.loads(run("platform", "Acme", env=env).stdout)
        other = json.loads(run("platform", "create", "list", env=env).stdout)
        key = acme["platformId"]

        listed = json.loads(run("platform", "list", "--json", env=env).stdout)
        recovered = json.loads(run("platform", "recover", key, env=env).stdout)
        tokens = json.loads(run("platform", "tokens", key, "--json", env=env).stdout)
        revoked = run("platform", "revoke", acme["clientId"], "clid_unknown", env=env)
        left_over = json.loads(run("platform", "tokens", key, "--json", env=env).stdout)
        again = json.loads(run("platform", "recover", key, "--revoke-others", env=env).stdout)
        unknown = run("platform", "recover", str(uuid4()), env=env)

        assert [(one["id"], one["name"], one["tokenCount"]) for one in listed] == [
            (key, "Acme", 1),
            (other["platformId"], "list", 1),
        ]
        assert [one["clientId"] for one in tokens] == [recovered["clientId"], acme["clientId"]]
        assert set(tokens[0]["permissions"]) == set(Permission)
        assert not any("Secret" in name for one in tokens for name in one)
        assert (revoked.returncode, revoked.stdout.splitlines()) == (
            1,
            [
                f"{acme['clientId']}: {tokens[1]['id']}",
                "clid_unknown: no such token",
                "1 revoked, 1 not",
            ],
        )
        assert [one["clientId"] for one in left_over] == [recovered["clientId"]]
        assert (unknown.returncode, "there is no platform" in unknown.stderr) == (1, True)
        with psycopg.connect(url) as connection:
            left = connection.execute("SELECT client_id FROM api_tokens").fetchall()
        assert {client_id for (client_id,) in left} == {again["clientId"], other["clientId"]}
        assert _is_right(url, again)
        assert not _is_right(url, recovered)

        run("platform", "quotas", key, "--set", "api_tokens=1", env=env)
        full = run("platform", "recover", key, "--revoke-others", env=env)
        assert (full.returncode, "raise the quota: cardledger platform quotas" in full.stderr) == (
            1,
            True,
        )
        assert not _is_right(url, again), "it is revoked all the same"


def test_quotas_of_platforms_are_shown_and_changed(
    postgres_url: DatabaseUrl, tmp_path: Path
) -> None:
    with support.own_database(postgres_url) as url:
        env = environment(
            DATABASE_URL=url,
            CARDLEDGER_SECRET_KEY="k" * 40,
            CARDLEDGER_DATA_DIR=str(tmp_path),
        )
        run("migrate", env=env)
        key = json.loads(run("platform", "Acme", env=env).stdout)["platformId"]

        run("platform", "quotas", "--set", "customers=70", env=env)
        own = run("platform", "quotas", key, "--set", "cards=5", "--json", env=env)
        shown = run("platform", "quotas", key, env=env)
        everyone = json.loads(run("platform", "quotas", "--json", env=env).stdout)
        unknown = run("platform", "quotas", "--set", "entries=1", env=env)
        malformed = run("platform", "quotas", "--set", "cards=-1", env=env)

    quotas = {one["resource"]: (one["rows"], one["quota"]) for one in json.loads(own.stdout)}
    assert (quotas["cards"], quotas["customers"]) == ((0, 5), (0, 70))
    assert quotas["webhook_endpoints"] == (0, 10_000)
    assert "cards                          0 of              5" in shown.stdout.splitlines()
    assert {"resource": "cards", "rows": 0, "quota": 5_000_000} in everyone
    assert (unknown.returncode, "entries has no quota" in unknown.stderr) == (2, True)
    assert (malformed.returncode, "write RESOURCE=ROWS" in malformed.stderr) == (2, True)


def _is_right(url: str, held: dict[str, str]) -> bool:
    """Return whether the client secret of `held` authenticates its token."""

    async def authenticate() -> bool:
        engine = async_engine(url, poolclass=NullPool)
        async with engine.connect() as connection:
            token = await api_tokens.authenticate(
                connection, held["clientId"], held["clientSecret"], KeyRing("k" * 40)
            )
        return token is not None and str(token.platform_id) == held["platformId"]

    return asyncio.run(authenticate())


def test_verify_ends_with_1_when_the_books_were_changed(postgres_url: DatabaseUrl) -> None:
    with support.own_database(postgres_url) as url:
        env = environment(DATABASE_URL=url)
        run("migrate", env=env)
        assert run("verify", env=env).returncode == 0
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO card_transaction_events (card_transaction_id, sequence, customer_id,"
                " kind, amount, message_id, occurred_at, recorded_at) VALUES (gen_random_uuid(), 1,"
                " gen_random_uuid(), 'AUTHORIZED', 5, gen_random_uuid(), now(), now())"
            )

        found = run("verify", "--json", env=env)

        assert found.returncode == 1
        assert json.loads(found.stdout)["holds"] is False


def _states(printed: str) -> dict[str, str]:
    return {one["name"]: one["state"] for one in json.loads(printed)["findings"]}

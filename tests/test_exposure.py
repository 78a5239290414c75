"""What is unsafe on a network, from settings alone: every rule, its repair and its exception."""

import os
import socket
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from cardledger.config.errors import CommandError
from cardledger.config.settings import PREFIX, Settings, variables
from cardledger.config.unsafe import Unsafe
from cardledger.install import exposure
from cardledger.install.production import examine
from cardledger.supervisor import processes

KEY = "k" * 32
EVERYWHERE = "0.0.0.0:8000"
VERIFIED = "sslmode=verify-full&sslrootcert=/etc/ssl/db.pem"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith((PREFIX, "PG")) or name in variables():
            monkeypatch.delenv(name)


def secret(value: str | None) -> SecretStr | None:
    return None if value is None else SecretStr(value)


def settings_of(
    *,
    sandbox: bool = False,
    forwarded_allow_ips: str = "192.0.2.1",
    database_url: str | None = None,
    redis_url: str | None = None,
) -> Settings:
    return Settings(
        sandbox=sandbox,
        forwarded_allow_ips=forwarded_allow_ips,
        database_url=secret(database_url),
        redis_url=secret(redis_url),
    )


def names(settings: Settings, *, listens_on: str | None = None) -> list[str]:
    return [hazard.name for hazard in exposure.hazards(settings, listens_on=listens_on)]


# --- the address to listen on ----------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "::ffff:127.0.0.1"]
)
def test_a_loopback_address_is_loopback(host: str) -> None:
    assert exposure.beyond_loopback(host, 8000) is None


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("0.0.0.0", "0.0.0.0:8000"),  # noqa: S104 - the point
        ("::", "[::]:8000"),
        ("192.0.2.7", "192.0.2.7:8000"),
        ("::ffff:192.0.2.7", "[::ffff:192.0.2.7]:8000"),
    ],
)
def test_any_other_address_is_beyond_loopback(host: str, shown: str) -> None:
    assert exposure.beyond_loopback(host, 8000) == shown


def test_without_a_host_the_api_listens_everywhere() -> None:
    assert "0.0.0.0:8000" in str(exposure.beyond_loopback("", 8000))


def test_a_host_that_is_unknown_is_no_address() -> None:
    with pytest.raises(CommandError, match="choose another --host"):
        exposure.beyond_loopback("no such host", 8000)


def test_a_socket_is_judged_by_its_address(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as loopback,
        socket.create_server(("0.0.0.0", 0)) as everywhere,  # noqa: S104 - the point
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(str(tmp_path / "api.sock"))

        assert exposure.beyond_loopback_of(loopback) is None
        assert exposure.beyond_loopback_of(unix) is None
        port = everywhere.getsockname()[1]
        assert exposure.beyond_loopback_of(everywhere) == f"0.0.0.0:{port}"


# --- each rule -------------------------------------------------------------------------------


def test_the_sandbox_is_for_loopback() -> None:
    settings = settings_of(sandbox=True)

    assert names(settings) == []
    assert names(settings, listens_on=EVERYWHERE) == ["sandbox"]


def test_beyond_loopback_a_reverse_proxy_must_be_named() -> None:
    settings = settings_of(forwarded_allow_ips="")

    assert names(settings) == []
    assert names(settings, listens_on=EVERYWHERE) == ["plaintext"]


@pytest.mark.parametrize(
    ("url", "on_loopback", "beyond"),
    [
        (None, False, False),
        ("redis://:word@cache:6379/0", False, False),
        ("redis://user:word@192.0.2.1/0", False, False),
        ("redis://cache?password=word", False, False),
        ("unix:///run/redis.sock?db=1", False, False),
        ("redis://cache:6379/0", True, True),
        ("redis://user:@cache:6379/0", True, True),
        ("rediss://cache:6379/0", True, True),
        ("redis://?host=cache", True, True),
        ("redis://127.0.0.1,cache:6379/0", True, True),
        ("redis://127.0.0.1:6379/0", False, True),
        ("redis://localhost", False, True),
        ("redis://[::1]:6379/0", False, True),
        ("redis://", False, True),
    ],
)
def test_redis_needs_a_password(url: str | None, *, on_loopback: bool, beyond: bool) -> None:
    settings = settings_of(redis_url=url)

    assert (names(settings) == ["redis-without-password"]) is on_loopback
    assert (names(settings, listens_on=EVERYWHERE) == ["redis-without-password"]) is beyond


@pytest.mark.parametrize(
    "url",
    [
        None,
        "postgresql:///ledger",
        "postgresql://app:word@127.0.0.1:5432/ledger",
        "postgresql://app:word@localhost/ledger",
        "postgresql://[::1]/ledger",
        "postgresql://%2Frun%2Fpostgresql/ledger",
        "postgresql://app@/ledger?host=/run/postgresql",
        "postgresql://name.of.a.certificate/ledger?hostaddr=127.0.0.1",
        f"postgresql://db1:5432,db2:5432/ledger?{VERIFIED}",
        "postgresql+psycopg://db1/ledger?sslrootcert=system",
    ],
)
def test_postgresql_here_or_verified_is_safe(url: str | None) -> None:
    assert names(settings_of(database_url=url), listens_on=EVERYWHERE) == []


@pytest.mark.parametrize(
    ("url", "places", "mode"),
    [
        ("postgresql://db1/ledger", "db1", "prefer"),
        ("postgresql://db1/ledger?sslmode=require", "db1", "require"),
        ("postgresql://db1/ledger?sslmode=verify-ca", "db1", "verify-ca"),
        ("postgresql://192.0.2.1/ledger?sslmode=disable", "192.0.2.1", "disable"),
        ("postgresql://127.0.0.1,db2/ledger", "db2", "prefer"),
        ("postgresql://db1:5432,127.0.0.1:5432,db3/ledger", "db1 and db3", "prefer"),
        ("postgresql://,db2/ledger", "db2", "prefer"),
        ("postgresql:///ledger?host=/tmp,db2", "db2", "prefer"),
        ("postgresql://localhost/ledger?hostaddr=192.0.2.1", "192.0.2.1", "prefer"),
        ("postgresql://localhost.example.com/ledger", "localhost.example.com", "prefer"),
        ("postgresql:///ledger?service=books", "the host of service books", "unknown"),
        ("postgresql+psycopg://db1/ledger", "db1", "prefer"),
    ],
)
def test_postgresql_elsewhere_must_be_verified(url: str, places: str, mode: str) -> None:
    [hazard] = exposure.hazards(settings_of(database_url=url))

    assert hazard.name == "postgresql-unverified"
    assert f"PostgreSQL on {places} have sslmode={mode}," in hazard.problem


def test_the_environment_of_libpq_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    here = settings_of(database_url="postgresql:///ledger")
    elsewhere = settings_of(database_url="postgresql://db1/ledger")
    monkeypatch.setenv("PGHOST", "db9")
    assert names(here) == names(elsewhere) == ["postgresql-unverified"]

    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert names(here) == names(elsewhere) == []


# --- refused or accepted -----------------------------------------------------------------------


def unsafe_settings(accept_unsafe: str) -> Settings:
    return Settings(
        database_url=SecretStr("postgresql://app:secret1@db1/ledger"),
        redis_url=SecretStr("redis://secret2@cache/0"),
        accept_unsafe=accept_unsafe,
    )


def test_a_refusal_names_the_repair_and_the_exception_of_each_and_no_secret() -> None:
    with pytest.raises(CommandError) as refused:
        exposure.check(unsafe_settings("plaintext"), listens_on=EVERYWHERE)

    message = str(refused.value)
    assert refused.value.code == 2
    assert "sandbox: the sandbox is on, and the API listens on 0.0.0.0:8000" in message
    assert "CARDLEDGER_SANDBOX=false" in message
    assert "redis-without-password: " in message
    assert "?sslmode=verify-full&sslrootcert=" in message
    assert "plaintext: " not in message
    accepting = (
        "CARDLEDGER_ACCEPT_UNSAFE=sandbox,plaintext,redis-without-password,postgresql-unverified"
    )
    assert message.endswith(accepting)
    assert "secret" not in message


def test_what_a_refusal_says_to_set_is_enough() -> None:
    with pytest.raises(CommandError) as refused:
        exposure.check(unsafe_settings(""), listens_on=EVERYWHERE)
    names = str(refused.value).rpartition("=")[2]

    accepted = exposure.check(unsafe_settings(names), listens_on=EVERYWHERE)

    assert [hazard.name for hazard in accepted] == list(Unsafe)[:4]


@pytest.mark.parametrize("text", ["", " ", ",", "sandbox", "sandbox, plaintext,", *Unsafe])
def test_exceptions_are_names_separated_by_commas(text: str) -> None:
    assert Settings(accept_unsafe=text).accept_unsafe == text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sandbx", "did you mean sandbox"),
        ("sandbox;plaintext", "unknown exception"),
        ("all", "known are sandbox, plaintext"),
        ("*", "known are sandbox, plaintext"),
        ("true", "known are"),
    ],
)
def test_an_unknown_exception_is_an_error(text: str, hint: str) -> None:
    with pytest.raises(ValidationError, match=hint):
        Settings(accept_unsafe=text)


# --- webhooks to loopback ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sandbox", "accepted", "allowed"),
    [
        (True, "", False),
        (True, "sandbox", False),
        (True, "sandbox,loopback-webhooks", True),
        (False, "loopback-webhooks", False),
    ],
)
def test_webhooks_go_to_loopback_only_when_that_is_accepted(
    accepted: str, *, sandbox: bool, allowed: bool
) -> None:
    settings = Settings(
        sandbox=sandbox,
        accept_unsafe=accepted,
        database_url=SecretStr("postgresql://here/y"),
        redis_url=SecretStr("redis://cache"),
        secret_key=SecretStr(KEY),
    )

    assert processes.api_config(settings).loopback_webhooks is allowed
    assert processes.worker_config(settings).loopback_webhooks is allowed


# --- doctor --production -----------------------------------------------------------------------


def test_a_production_check_judges_an_api_on_loopback_as_if_it_were_on_a_network() -> None:
    states = {finding.name: finding.state for finding in examine(Settings())}

    assert states["sandbox"] == states["plaintext"] == "fail"
    assert states["PostgreSQL server"] == states["Redis server"] == "fail"
    assert states["public URL"] == "warn"


def test_a_production_check_fails_for_what_is_accepted() -> None:
    accepted = "sandbox,plaintext,redis-without-password,postgresql-unverified,loopback-webhooks"
    settings = Settings(
        sandbox=True,
        accept_unsafe=accepted,
        public_url="https://ledger.example.com",
        database_url=SecretStr("postgresql://db1/ledger?sslmode=require"),
        redis_url=SecretStr("redis://127.0.0.1:6379/0"),
    )

    findings = {finding.name: finding for finding in examine(settings)}

    for name in accepted.split(","):
        assert findings[name].state == "fail"
        assert findings[name].detail.startswith("accepted by CARDLEDGER_ACCEPT_UNSAFE: ")


def test_a_production_check_warns_of_what_is_accepted_without_need() -> None:
    settings = settings_of(database_url=f"postgresql://db1/ledger?{VERIFIED}")
    accepting = settings.model_copy(update={"accept_unsafe": "sandbox,loopback-webhooks"})

    findings = {finding.name: finding for finding in examine(accepting)}

    for name in ("sandbox", "loopback-webhooks"):
        assert (findings[name].state, findings[name].detail) == ("warn", "accepted without need")


def test_a_production_check_finds_nothing_wrong_with_a_safe_installation() -> None:
    settings = Settings(
        sandbox=False,
        forwarded_allow_ips="127.0.0.1",
        public_url="https://ledger.example.com",
        database_url=SecretStr(f"postgresql://db1,db2/ledger?{VERIFIED}"),
        redis_url=SecretStr("unix:///run/redis/redis.sock"),
    )

    assert {finding.state for finding in examine(settings)} == {"ok"}


def test_metrics_beyond_loopback_need_a_token() -> None:
    settings = Settings(metrics_port=9101, metrics_host="0.0.0.0")  # noqa: S104 - what is refused

    with pytest.raises(CommandError, match=r"0\.0\.0\.0:9101 .* CARDLEDGER_METRICS_TOKEN"):
        exposure.check_metrics(settings)

    exposure.check_metrics(settings.model_copy(update={"metrics_host": "127.0.0.1"}))
    exposure.check_metrics(settings.model_copy(update={"metrics_token": SecretStr("t" * 32)}))

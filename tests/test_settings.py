import os
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from cardledger.config.errors import CommandError
from cardledger.config.settings import PREFIX, Settings, variables
from cardledger.embedded.servers import DatabaseUrl
from cardledger.supervisor import processes

KEY = "k" * 32


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIX) or name in variables():
            monkeypatch.delenv(name)


def test_an_empty_environment_is_enough() -> None:
    settings = Settings()

    assert settings.database_url is None
    assert settings.redis_url is None
    assert settings.secret_key is None
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.batch_size == 500
    assert settings.data_dir == Path.cwd() / ".cardledger"


def test_every_setting_has_a_sentence() -> None:
    for name, sentence in variables().items():
        assert sentence.endswith("."), name


def test_the_two_urls_have_the_names_that_everyone_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://owner:word@db/cardledger")
    monkeypatch.setenv("REDIS_URL", "redis://cache:6379/0")

    settings = Settings()

    assert settings.database_url == SecretStr("postgresql://owner:word@db/cardledger")
    assert settings.redis_url == SecretStr("redis://cache:6379/0")


def test_all_other_settings_carry_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARDLEDGER_PORT", "9000")
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", KEY)
    monkeypatch.setenv("CARDLEDGER_LOG_FORMAT", "JSON")
    monkeypatch.setenv("CARDLEDGER_DATA_DIR", "/var/lib/ledger")

    settings = Settings()

    assert settings.port == 9000
    assert settings.secret_key == SecretStr(KEY)
    assert settings.log_format == "json"
    assert settings.data_dir == Path("/var/lib/ledger")


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/x")
    monkeypatch.setenv("CARDLEDGER_PORT", "9000")

    settings = Settings(port=0, database_url=SecretStr("postgresql://here/y"))

    assert settings.port == 0
    assert settings.database_url == SecretStr("postgresql://here/y")


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "")
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", "")

    settings = Settings()

    assert settings.redis_url is None
    assert settings.secret_key is None


def test_a_misspelt_variable_is_refused_with_the_nearest_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CARDLEDGER_SECRET_KEYS", KEY)

    with pytest.raises(ValidationError) as refused:
        Settings()

    assert "CARDLEDGER_SECRET_KEYS: did you mean CARDLEDGER_SECRET_KEY?" in str(refused.value)
    assert KEY not in str(refused.value)


def test_a_variable_like_no_other_is_refused_with_the_whole_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CARDLEDGER_ZZZZZZZZZZZZZZZZZZZZ", "1")

    with pytest.raises(ValidationError, match="known are CARDLEDGER_ACCEPT_UNSAFE"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CARDLEDGER_SECRET_KEY", "k" * 31),
        ("CARDLEDGER_BATCH_SIZE", "0"),
        ("CARDLEDGER_BATCH_SIZE", "5001"),
        ("CARDLEDGER_PORT", "65536"),
        ("CARDLEDGER_SWEEP_INTERVAL_S", "0"),
        ("CARDLEDGER_WORKER_THREADS", "0"),
        ("CARDLEDGER_WEBHOOK_TIMEOUT_S", "51"),
        ("CARDLEDGER_LOG_LEVEL", "loud"),
        ("CARDLEDGER_CONNECTION_LIMIT", "0"),
        ("CARDLEDGER_FORWARDED_ALLOW_IPS", "*"),
        ("CARDLEDGER_FORWARDED_ALLOW_IPS", "proxy.internal"),
        ("CARDLEDGER_PUBLIC_URL", "ledger.example.com"),
        ("CARDLEDGER_PUBLIC_URL", "https://user:password@ledger.example.com"),
        ("CARDLEDGER_PUBLIC_URL", "https://ledger.example.com/?a=b"),
        ("CARDLEDGER_PUBLIC_URL", "https://ledger.example.com:99999"),
        ("CARDLEDGER_PUBLIC_URL", "https://led ger.example.com"),
        ("DATABASE_URL", "mysql://root@db/x"),
        ("REDIS_URL", "http://cache"),
    ],
)
def test_a_value_out_of_range_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ValidationError) as refused:
        Settings()

    assert refused.value.error_count() == 1
    assert f"input_value='{value}'" not in str(refused.value)


def test_secrets_do_not_show_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", KEY)
    monkeypatch.setenv("DATABASE_URL", "postgresql://owner:hush-hush@db/cardledger")

    printed = repr(Settings())

    assert KEY not in printed
    assert "hush" not in printed


@pytest.mark.parametrize(("value", "meant"), [(None, True), ("true", True), ("false", False)])
def test_every_process_knows_whether_it_is_a_sandbox(
    monkeypatch: pytest.MonkeyPatch, value: str | None, *, meant: bool
) -> None:
    if value is not None:
        monkeypatch.setenv("CARDLEDGER_SANDBOX", value)
    monkeypatch.setenv("DATABASE_URL", "postgresql://here/y")
    monkeypatch.setenv("REDIS_URL", "redis://cache:6379/0")
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", KEY)

    settings = Settings()

    assert settings.sandbox is meant
    assert processes.api_config(settings).sandbox is meant
    assert processes.worker_config(settings).sandbox is meant


def test_settings_cannot_be_changed() -> None:
    settings = Settings()

    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


def test_the_schema_is_part_of_the_url_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://owner@db/ledger")
    monkeypatch.setenv("CARDLEDGER_SCHEMA", "books")

    url = Settings().database_url

    assert url is not None
    assert DatabaseUrl(url.get_secret_value()).schema == "books"


def test_a_schema_that_would_need_quotes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARDLEDGER_SCHEMA", "My Books")

    with pytest.raises(ValidationError, match="a schema is named by"):
        Settings()


@pytest.mark.parametrize("path", ["cardledger%2Cpublic", "%22Books%22"])
def test_a_search_path_in_the_url_must_be_one_schema(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    url = f"postgresql://owner@db/ledger?options=-c%20search_path%3D{path}"
    monkeypatch.setenv("DATABASE_URL", url)

    with pytest.raises(ValidationError, match="cannot be the PostgreSQL schema"):
        Settings()


def test_the_limits_of_connections_come_from_settings_and_open_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert processes.connection_limits(Settings(), open_files=20_000).connections == 4000
    assert processes.connection_limits(Settings(), open_files=1024).per_address == 128
    monkeypatch.setenv("CARDLEDGER_CONNECTION_LIMIT", "600")
    monkeypatch.setenv("CARDLEDGER_ADDRESS_CONNECTION_LIMIT", "50")
    monkeypatch.setenv("CARDLEDGER_FORWARDED_ALLOW_IPS", "10.0.0.0/8, 192.0.2.1")

    limits = processes.connection_limits(Settings(), open_files=2048)

    assert (limits.connections, limits.per_address) == (600, 50)
    assert [str(network) for network in limits.proxies] == ["10.0.0.0/8", "192.0.2.1/32"]
    with pytest.raises(CommandError, match="600 connections do not fit in 1024 open files"):
        processes.connection_limits(Settings(), open_files=1024)


def test_the_public_url_has_no_slash_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARDLEDGER_PUBLIC_URL", "https://ledger.example.com:8443/cards/")

    assert Settings().public_url == "https://ledger.example.com:8443/cards"

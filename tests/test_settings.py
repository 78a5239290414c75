import os
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from cardledger.config import configuration
from cardledger.config.errors import CommandError
from cardledger.config.settings import PREFIX, Settings, key_list, variables
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import credentials
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
        ("CARDLEDGER_PASSKEY_ORIGINS", "https://bank.example.com/path"),
        ("CARDLEDGER_PASSKEY_ORIGINS", "http://bank.example.com"),
        ("CARDLEDGER_PASSKEY_ORIGINS", "bank.example.com"),
        ("CARDLEDGER_PASSKEY_RELYING_PARTY", "Bank!"),
        ("CARDLEDGER_END_USER_TERMS_URL", "http://ledger.example.com/terms"),
        ("CARDLEDGER_END_USER_TERMS_URL", "https://ledger.example.com/terms"),  # No version.
        ("CARDLEDGER_END_USER_TERMS_VERSION", "2026-01"),
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


@pytest.mark.parametrize(
    ("variables", "is_on_loopback", "mode"),
    [
        ({}, True, "act"),
        ({}, False, "off"),
        ({"SANDBOX": "false"}, True, "off"),
        ({"CONSOLE": "READ"}, False, "read"),
        ({"CONSOLE": "off"}, True, "off"),
        ({"CONSOLE": "act", "SANDBOX": "false"}, False, "act"),
    ],
)
def test_there_is_a_console_in_a_sandbox_on_loopback_unless_something_else_is_set(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    is_on_loopback: bool,  # noqa: FBT001 - of the table
    mode: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"{PREFIX}{name}", value)

    assert processes.console_mode(Settings(), is_on_loopback=is_on_loopback) == mode


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


def test_every_limit_reaches_the_process_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "DATABASE_URL": "postgresql://owner:word@db/cardledger",
        "REDIS_URL": "redis://cache:6379/0",
        "CARDLEDGER_SECRET_KEY": KEY,
        "CARDLEDGER_RATE_LIMIT": "7/minute",
        "CARDLEDGER_FAILURE_LIMIT": "8/minute",
        "CARDLEDGER_IN_PROGRESS_LIMIT": "9",
        "CARDLEDGER_HEAD_TIMEOUT_S": "11",
        "CARDLEDGER_BODY_TIMEOUT_S": "12",
        "CARDLEDGER_STALL_TIMEOUT_S": "13",
        "CARDLEDGER_KEEP_ALIVE_S": "14",
        "CARDLEDGER_PUBLIC_URL": "https://ledger.example.com",
        "CARDLEDGER_PASSKEY_ORIGINS": "https://app.bank.example.com, https://bank.example.com",
        "CARDLEDGER_PASSKEY_RELYING_PARTY": "bank.example.com",
        "CARDLEDGER_END_USER_TERMS_URL": "https://ledger.example.com/terms",
        "CARDLEDGER_END_USER_TERMS_VERSION": "2026-01",
        "CARDLEDGER_WEBHOOK_RETENTION_DAYS": "15",
        "CARDLEDGER_WEBHOOK_WAITING_LIMIT": "1600",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()

    api, worker = processes.api_config(settings), processes.worker_config(settings)
    limits = processes.connection_limits(settings, open_files=20_000)

    assert (api.rate_limit, api.failure_limit, api.in_progress_limit) == ("7/minute", "8/minute", 9)
    assert (api.body_timeout_s, api.public_url) == (12, "https://ledger.example.com")
    assert api.end_user_terms is not None
    assert api.end_user_terms.version == "2026-01"
    assert api.end_user_terms.url == "https://ledger.example.com/terms"
    assert api.passkeys is not None
    assert api.passkeys.id == "bank.example.com"
    assert api.passkeys.origins == ("https://app.bank.example.com", "https://bank.example.com")
    assert (limits.head_timeout_s, limits.body_timeout_s, limits.stall_timeout_s) == (11, 12, 13)
    assert limits.keep_alive_s == 14
    assert worker.webhook_retention == timedelta(days=15)
    assert (api.webhook_waiting_limit, worker.webhook_waiting_limit) == (1600, 1600)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix"])
def test_redis_is_reached_in_plain_text_over_tls_or_over_a_unix_socket(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("REDIS_URL", f"{scheme}://cardledger_api:word@redis1:6379/0")

    url = Settings().redis_url

    assert url is not None
    assert url.get_secret_value().startswith(f"{scheme}://")


def test_no_address_is_believed_to_be_a_proxy_unless_it_is_named() -> None:
    assert processes.connection_limits(Settings(), open_files=2048).proxies == ()


def test_the_public_url_has_no_slash_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARDLEDGER_PUBLIC_URL", "https://ledger.example.com:8443/cards/")

    assert Settings().public_url == "https://ledger.example.com:8443/cards"


# --- secrets in files --------------------------------------------------------------------------

SECRETS = {
    "CARDLEDGER_SECRET_KEY": KEY,
    "CARDLEDGER_FORMER_SECRET_KEYS": f"{KEY}2\n{KEY}3",
    "CARDLEDGER_NEXT_SECRET_KEY": f"{KEY}4",
    "CARDLEDGER_APP_PASSWORD": " with a blank ",
    "CARDLEDGER_API_PASSWORD": "of the API",
    "CARDLEDGER_WORKER_PASSWORD": "of the workers",
    "CARDLEDGER_WEBHOOKS_PASSWORD": "of the senders",
    "CARDLEDGER_READER_PASSWORD": "of auditors",
    "CARDLEDGER_FINANCE_PASSWORD": "of finance",
    "CARDLEDGER_SUBMIT_PASSWORD": "of a program that submits",
    "CARDLEDGER_METRICS_TOKEN": "of a program that scrapes, long enough",
    "DATABASE_URL": "postgresql://owner:hush-hush@db/cardledger",
    "REDIS_URL": "redis://:hush@cache:6379/0",
    "CARDLEDGER_CONSOLE_DATABASE_URL": "postgresql://api:hush-hush@replica/cardledger",
}


def test_every_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(value + "\n")
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))

    from_files = Settings()

    for name, value in SECRETS.items():
        monkeypatch.delenv(f"{name}_FILE")
        monkeypatch.setenv(name, value)
    assert Settings() == from_files
    assert {name for name in variables() if f"{name}_FILE" in variables()} == set(SECRETS)
    keys = credentials.with_others(from_files, KEY)
    assert keys.all == (KEY, f"{KEY}2", f"{KEY}3", f"{KEY}4")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        ("one", ("one",)),
        ("one, two", ("one", "two")),
        ("\none, and more", ("one, and more",)),
        ("one, and more\ntwo\n", ("one, and more", "two")),
    ],
)
def test_former_keys_are_in_lines_or_separated_by_commas(text: str, keys: tuple[str, ...]) -> None:
    assert key_list(text) == keys


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot read the file: No such file or directory"),
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"hush-hush" + b"\xff" * 40, "the file is not text in UTF-8"),
        (b"hush-hush" * 10_000, "the file has more than 16,384 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_its_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "a-secret-that-was-taken-for-a-path"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY_FILE", str(path))

    with pytest.raises(CommandError) as refused:
        configuration.load()

    assert str(refused.value) == f"CARDLEDGER_SECRET_KEY_FILE: {problem}"


def test_a_pipe_is_no_file_of_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY_FILE", str(tmp_path / "pipe"))

    with pytest.raises(CommandError, match="not a regular file"):
        configuration.load()


def test_a_secret_that_is_given_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY)
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", KEY)

    with pytest.raises(CommandError) as refused:
        configuration.load()

    assert str(refused.value) == (
        "CARDLEDGER_SECRET_KEY and CARDLEDGER_SECRET_KEY_FILE are both set; set one of them"
    )


def test_a_short_key_in_a_file_or_a_list_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("hush-hush")
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("CARDLEDGER_FORMER_SECRET_KEYS", f"{KEY},hush-hush")

    with pytest.raises(CommandError, match="CARDLEDGER_SECRET_KEY: ") as refused:
        configuration.load()

    assert "CARDLEDGER_FORMER_SECRET_KEYS: each key must have" in str(refused.value)
    assert "hush" not in str(refused.value)

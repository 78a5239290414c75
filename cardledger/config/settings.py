"""The settings, read from the environment.

Every field has a description, which `cardledger settings` and the documentation print.
"""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from cardledger.api import addresses
from cardledger.api.http import sliding_window
from cardledger.config import secret_files, unsafe
from cardledger.schema import location

PREFIX = "CARDLEDGER_"
MIN_KEY_LENGTH = 32

HEALTH_DIR = "health"
"""The folder of the data directory in which workers report."""

# The "+psycopg" form is what SQLAlchemy users have at hand; servers.DatabaseUrl takes it off.
POSTGRES_SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")

_RETENTION_LIMIT = 36_500  # Days; a century, which dates can hold.

_URL_CHARACTERS = re.compile(r"[\w.~%:/\[\]-]+", re.ASCII)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]
ConsoleSetting = Annotated[Literal["off", "read", "act"], BeforeValidator(_lower)]
LogFormat = Annotated[Literal["console", "json"], BeforeValidator(_lower)]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0)]


class Settings(BaseSettings):
    """Everything that differs between two installations, read once at the start.

    Raises: pydantic.ValidationError naming the field or the unknown variable; values are kept
    out of the message, because some of them are secret.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,  # Compose files pass optional variables on as empty ones.
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    database_schema: str | None = Field(
        default=None,
        validation_alias="CARDLEDGER_SCHEMA",
        description="PostgreSQL schema that holds the tables (default: cardledger).",
    )
    database_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_URL",
        description="PostgreSQL to use, as postgresql://user:password@host:port/database, on"
        " another host with ?sslmode=verify-full; without it an embedded PostgreSQL is started in"
        " the data directory.",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        validation_alias="REDIS_URL",
        description="Redis to use, as redis://user:password@host:port/number, or rediss:// for TLS;"
        " without it an embedded Redis is started.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Key for hashes, encryption at rest and signatures; at least 32 characters, the"
        " same in every process, kept as long as the database.",
    )
    former_secret_keys: SecretStr | None = Field(
        default=None,
        description="Server keys before the current one, separated by commas, the oldest last:"
        " during a rotation they still open and verify (docs/keys.md).",
    )
    next_secret_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Server key after the current one: before a rotation it already opens and"
        " verifies (docs/keys.md).",
    )
    bind_secrets: bool = Field(
        default=True,
        description="Whether stored secrets are bound to their place. False only while processes of"
        " a release before schema 0018 run, which cannot read such values (docs/keys.md).",
    )
    app_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_app`, which the operator's commands use.",
    )
    api_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_api`.",
    )
    worker_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_worker`.",
    )
    webhooks_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_webhooks`.",
    )
    reader_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_reader`.",
    )
    submit_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_submit`.",
    )
    finance_password: SecretStr | None = Field(
        default=None,
        description="Password that `cardledger migrate` sets for the database role"
        " `<database>_finance`.",
    )
    host: str = Field(default="127.0.0.1", description="Address that the API listens on.")
    port: Port = Field(
        default=8000, description="Port that the API listens on; 0 chooses a free port."
    )
    data_dir: Path = Field(
        default=Path(".cardledger"),
        validate_default=True,
        description="Directory for the data of embedded servers and the installation's secrets.",
    )
    worker_threads: int = Field(
        default=8, ge=1, le=256, description="Number of threads of a worker process."
    )
    batch_size: int = Field(
        default=500,
        ge=1,
        le=5000,
        description="Maximum number of network events decided in one database transaction.",
    )
    sweep_interval_s: Seconds = Field(
        default=0.5,
        description="Seconds between two polls of a worker for waiting rows.",
    )
    reply_timeout_s: Seconds = Field(
        default=10,
        description="Seconds an API call waits for an outcome before it returns a retryable error.",
    )
    sandbox: bool = Field(
        default=True,
        description="Whether this is a sandbox: simulators, funding by request, magic suffixes of"
        " names and identifiers, and under `up` and `demo` webhooks to this machine. When false,"
        " none of these is available, and new customers are UNVERIFIED.",
    )
    sandbox_delay_s: float = Field(
        default=30,
        ge=0,
        description="How long, in the sandbox, a card with suffix 005 takes to become ACTIVE, and"
        " a pull with suffix 005 or 006 stays pending.",
    )
    exchange_spread_bps: int = Field(
        default=50,
        ge=0,
        le=5000,
        description="What the installation adds to the market rate of a conversion, in basis"
        " points (hundredths of a percent). A rate that a platform sets in a sandbox has none.",
    )
    rate_limit: str = Field(
        default="300000/minute",
        description="Maximum number of requests of one platform, and as many of its agents: a"
        " number per second, minute, hour or day, or off.",
    )
    failure_limit: str = Field(
        default="60/minute",
        description="Maximum number of wrong secrets for one id, and of unknown ids and device"
        " codes from one address; right credentials pass. In the format of the rate limit.",
    )
    in_progress_limit: int = Field(
        default=1000,
        ge=1,
        description="Maximum number of requests of one platform that an API process has in progress"
        " at a time, and as many of its agents; events, writes and reads are counted apart.",
    )
    head_timeout_s: Seconds = Field(
        default=10, description="Seconds a client may take to send the head of a request."
    )
    body_timeout_s: Seconds = Field(
        default=30, description="Seconds a client may take to send the body of a request."
    )
    document_bytes: int = Field(
        default=10 * 2**30,
        ge=0,
        description="Bytes of the files of documents that one platform may have; a small file"
        " counts as 4096.",
    )
    documents_dir: Path | None = Field(
        default=None,
        description="Directory for the files of documents, an absolute path: it exists, and every"
        " process of the API has the same one (default: the files are in PostgreSQL;"
        " docs/documents.md).",
    )
    stall_timeout_s: Seconds = Field(
        default=10,
        description="Seconds in which a client must send some bytes of a body, or read some of a"
        " response.",
    )
    keep_alive_s: int = Field(
        default=30,
        ge=1,
        le=3600,
        description="Seconds for which the API keeps a connection open between two requests. A"
        " reverse proxy must close its idle connections earlier.",
    )
    connection_limit: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of open connections of the API (default: 4000, or as many as"
        " the hard limit of open files allows).",
    )
    address_connection_limit: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of open connections from one address; proxies are exempt"
        " (default: a quarter of all connections).",
    )
    forwarded_allow_ips: str = Field(
        default="",
        description="Addresses or networks of reverse proxies, separated by commas, whose"
        " X-Forwarded-For and X-Forwarded-Proto are believed (default: none).",
    )
    public_url: str | None = Field(
        default=None,
        description="URL at which clients reach the API, as https://ledger.example.com; URLs in"
        " responses begin with it (default: the address that the request arrived at).",
    )
    console: ConsoleSetting | None = Field(
        default=None,
        description="What the web console at /console may do: off, read, or act, which also sends"
        " what its buttons say (default: act in a sandbox that listens on loopback, else off).",
    )
    console_database_url: SecretStr | None = Field(
        default=None,
        description="PostgreSQL that the pages of the console read, which may be a replica, with"
        " the login of the API; for half a minute after a form they read DATABASE_URL (default:"
        " DATABASE_URL).",
    )
    end_user_terms_url: str | None = Field(
        default=None,
        max_length=2048,
        pattern=r"^https://[!-~]+$",
        description="Address of the terms that end users accept, which starts with https://"
        " (default: a page of the sandbox; outside it GET /customers/end-user-terms is 501).",
    )
    end_user_terms_version: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Version of the terms at CARDLEDGER_END_USER_TERMS_URL; both or neither.",
    )
    passkey_origins: str = Field(
        default="",
        max_length=2048,
        description="Origins of the pages on which customers use passkeys, separated by commas, as"
        " https://bank.example.com (default: none; in a sandbox ports 3000 and 8000 of localhost).",
    )
    passkey_relying_party: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9.-]{1,253}$",
        description="Domain that passkeys are for, of which the origins are hosts (default: the"
        " host of the first of CARDLEDGER_PASSKEY_ORIGINS).",
    )
    accept_unsafe: str = Field(
        default="",
        description="What is accepted although it is unsafe on a network, by names separated by"
        f" commas: {', '.join(unsafe.Unsafe)} (default: none). The refusal to start says which.",
    )
    webhook_retry_scale: Seconds = Field(
        default=1.0,
        description="Factor for the pauses between delivery attempts: above 1 lengthens them.",
    )
    webhook_timeout_s: Seconds = Field(
        default=15,
        # An attempt must end before its lease of a minute does, or another worker would repeat it.
        le=50,
        description="Seconds a webhook receiver may take before an attempt fails.",
    )
    webhook_retention_days: int = Field(
        default=90,
        ge=8,  # The retries of a delivery take four days.
        le=_RETENTION_LIMIT,
        description="Days after which a delivery of a webhook is deleted with its attempts, unless"
        " it is still to be sent.",
    )
    webhook_waiting_limit: int = Field(
        default=100_000,
        ge=1_000,
        le=100_000_000,
        description="Deliveries of webhooks of a platform that may wait. While as many wait, an"
        " endpoint that has more than a hundredth of them gets no new ones; what it misses is kept"
        " for replays.",
    )
    quote_retention_days: int = Field(
        default=30,
        ge=1,
        le=_RETENTION_LIMIT,
        description="Days after which a quote that expired unexecuted is deleted.",
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Bearer token for /metrics of every process, at least 32 characters; without"
        " one, only programs of the same machine can read it (docs/observability.md).",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port on which a worker process serves /metrics (default: none). Under `up` it"
        " is the first worker's; the others and the sender of webhooks have the ports after it.",
    )
    metrics_host: str = Field(
        default="127.0.0.1",
        description="Address that a worker serves /metrics on; beyond loopback it needs a token.",
    )
    log_level: LogLevel = Field(default="info", description="Lowest severity that is logged.")
    log_format: LogFormat = Field(
        default="console", description="Log format: console for people, json for machines."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_variables(cls, values: dict[str, Any]) -> dict[str, Any]:
        # pydantic-settings looks up the names it knows and never sees the others; a typo in
        # CARDLEDGER_SECRET_KEY would then run with no key at all, and say nothing.
        unknown = sorted(
            name for name in os.environ if name.startswith(PREFIX) and name not in variables()
        )
        if unknown:
            raise ValueError("; ".join(_unknown(name, variables()) for name in unknown))
        names = _secret_variables()
        contents = secret_files.read(names)
        return values | {names[variable]: text for variable, text in contents.items()}

    @field_validator("former_secret_keys")
    @classmethod
    def _are_keys(cls, keys: SecretStr | None) -> SecretStr | None:
        short = any(len(key) < MIN_KEY_LENGTH for key in key_list(secret_of(keys) or ""))
        if short:
            raise ValueError(f"each key must have at least {MIN_KEY_LENGTH} characters")
        return keys

    @field_validator("database_schema")
    @classmethod
    def _is_schema(cls, name: str | None) -> str | None:
        return name if name is None else location.checked(name)

    @field_validator("database_url", "console_database_url")
    @classmethod
    def _is_postgres(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        _with_scheme(url, POSTGRES_SCHEMES)
        if url is None:
            return None
        schema = info.data.get("database_schema")
        if schema is None:
            location.with_default(url.get_secret_value())  # Refuses a search path of several.
            return url
        return SecretStr(location.with_name(url.get_secret_value(), schema))

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, url: SecretStr | None) -> SecretStr | None:
        return _with_scheme(url, REDIS_SCHEMES)

    @field_validator("rate_limit", "failure_limit")
    @classmethod
    def _is_rate(cls, text: str) -> str:
        sliding_window.parse(text)
        return text

    @field_validator("forwarded_allow_ips")
    @classmethod
    def _are_addresses(cls, text: str) -> str:
        addresses.parse_networks(text)
        return text

    @field_validator("accept_unsafe")
    @classmethod
    def _are_exceptions(cls, text: str) -> str:
        unsafe.parse(text)
        return text

    @field_validator("public_url")
    @classmethod
    def _is_root_url(cls, url: str | None) -> str | None:
        return url if url is None else _root_url(url)

    @field_validator("passkey_origins")
    @classmethod
    def _are_origins(cls, text: str) -> str:
        for origin in key_list(text):
            if _root_url(origin) != origin or urlsplit(origin).path:
                raise ValueError("must be origins like https://bank.example.com, without a path")
        return text

    @model_validator(mode="after")
    def _origins_are_hosts_of_the_relying_party(self) -> Self:
        party = self.passkey_relying_party
        for origin in key_list(self.passkey_origins):
            parts = urlsplit(origin)
            host = parts.hostname or ""
            if parts.scheme != "https" and host != "localhost":
                raise ValueError("PASSKEY_ORIGINS must start with https://, but for localhost")
            if party is not None and host != party and not host.endswith("." + party):
                raise ValueError("PASSKEY_ORIGINS must be hosts of PASSKEY_RELYING_PARTY")
        return self

    @model_validator(mode="after")
    def _has_whole_terms(self) -> Self:
        if (self.end_user_terms_url is None) != (self.end_user_terms_version is None):
            raise ValueError("set END_USER_TERMS_URL and END_USER_TERMS_VERSION, or neither")
        return self

    @field_validator("documents_dir")
    @classmethod
    def _is_of_every_process(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError("must be an absolute path: it is the same for every process")
        return path

    @field_validator("data_dir")
    @classmethod
    def _is_absolute(cls, path: Path) -> Path:
        # Servers and workers are other processes, and may have another working directory.
        return path.expanduser().absolute()

    @property
    def loopback_webhooks(self) -> bool:
        """Whether webhooks may be sent to this machine: in a sandbox, when that is accepted."""
        return self.sandbox and unsafe.Unsafe.LOOPBACK_WEBHOOKS in unsafe.parse(self.accept_unsafe)


def variables() -> dict[str, str]:
    """Return every environment variable that `Settings` reads, with its sentence."""
    found = {}
    for name, field in Settings.model_fields.items():
        found[_variable(name, field)] = field.description or ""
        if _is_secret(field):
            found[_variable(name, field) + secret_files.SUFFIX] = (
                f"File that contains {_variable(name, field)}, instead of the variable."
            )
    return found


def defaults() -> dict[str, str]:
    """Return the default value of each variable as text; the empty text where there is none."""
    return {
        _variable(name, field): _as_text(field.default)
        for name, field in Settings.model_fields.items()
    }


def _as_text(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return "" if default is None else str(default)


def key_list(text: str) -> tuple[str, ...]:
    """Return the values in `text`, such as keys: one in each line, else separated by commas."""
    parts = text.split("\n" if "\n" in text else ",")
    return tuple(part.strip() for part in parts if part.strip())


def secret_of(secret: SecretStr | None) -> str | None:
    """Return the secret text of a setting, None when it was not given."""
    return None if secret is None else secret.get_secret_value()


def _secret_variables() -> dict[str, str]:
    """Return the name by which pydantic knows the field of each variable that is a secret."""
    return {
        _variable(name, field): str(field.validation_alias or name)
        for name, field in Settings.model_fields.items()
        if _is_secret(field)
    }


def _variable(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    return alias if isinstance(alias, str) else f"{PREFIX}{name}".upper()


def _is_secret(field: FieldInfo) -> bool:
    return field.annotation == SecretStr | None


def _unknown(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(sorted(known))}"
    return f"unknown environment variable {name}: {hint}"


def _root_url(url: str) -> str:
    """Return `url` without a slash at its end."""
    parts = urlsplit(url)
    rest = (parts.query, parts.fragment, parts.username, parts.password)
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(rest):
        raise ValueError("must be a URL like https://ledger.example.com, without query or login")
    if not _URL_CHARACTERS.fullmatch(url) or parts.port == 0:  # Reading the port validates it.
        raise ValueError("must contain characters of URLs only, and a valid port if any")
    return url.rstrip("/")


def _with_scheme(url: SecretStr | None, schemes: tuple[str, ...]) -> SecretStr | None:
    if url is not None and not url.get_secret_value().startswith(schemes):
        raise ValueError(f"must start with {' or '.join(schemes)}")
    return url

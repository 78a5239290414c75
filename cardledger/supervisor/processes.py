"""The kinds of processes: the API and workers. `up` and docker-compose start them.

Each imports what it needs when it starts: a worker without FastAPI starts in half the time.
"""

# ruff: noqa: PLC0415 - see above.

import os
import socket
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog

from cardledger.config import gc_tuning, malloc_tuning, open_files, thread_tuning
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import HEALTH_DIR, Settings, key_list, secret_of
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.supervisor import lifeline
from cardledger.workers.signals.roles import WorkerRole

if TYPE_CHECKING:
    from types import FrameType

    from cardledger.api.app import ApiConfig
    from cardledger.api.connections.limits import ConnectionLimits
    from cardledger.install.exposure import Hazard
    from cardledger.ledger.customers.authentication.passkeys import RelyingParty
    from cardledger.ledger.storage.secrets.key_ring import ServerKey
    from cardledger.workers.metrics.access import MetricsConfig
    from cardledger.workers.process.config import WorkerConfig

API_END_S: Final = 18.0
"""From a signal to the end of the API.

Requests in progress have ten seconds of them, and the client of the workers five: it writes timeout
reversals, and logs those that it cannot write. Codes that are on their way to customers have two.
"""

_NICE: Final = 15  # Where processors are short, decisions come before webhooks.

_log = structlog.get_logger()


def run_api(settings: Settings, *, listen_fd: int | None, supervised: bool) -> None:
    """Serve HTTP until SIGTERM or SIGINT, on the socket `listen_fd` when there is one.

    The process ends within fifteen seconds then: ten are for requests in progress.
    Raises: CommandError when that would be unsafe on a network and is not accepted.
    """
    from cardledger.install import exposure

    listening = None if listen_fd is None else socket.socket(fileno=listen_fd)
    if listening is None:
        listens_on = exposure.beyond_loopback(settings.host, settings.port)
    else:
        listens_on = exposure.beyond_loopback_of(listening)
    _log_accepted(exposure.check(settings, listens_on=listens_on))

    import uvicorn

    from cardledger.api.app import create_app
    from cardledger.api.connections.server import server_config
    from cardledger.install.installation_report import examiner
    from cardledger.workers.process.end import ended_in_time, leave_threads_behind
    from cardledger.workers.process.stop_request import stop_on

    limits = connection_limits(settings, open_files=open_files.raise_limit())
    served = api_config(settings, is_on_loopback=listens_on is None)
    config = server_config(
        create_app(
            served, examine=examiner(served.database_url, served.redis_url, served.secret_key)
        ),
        limits,
        host=settings.host,
        port=settings.port,
        has_access_log=settings.log_level == "debug",
    )

    class Server(uvicorn.Server):
        """Notifies the supervisor when it serves, and `stop` when it is to end."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if supervised and self.started:
                lifeline.report_ready()
                # That the process runs: a loop that is busy for seconds is slow, and not frozen.
                lifeline.report_alive()

        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            stop.set()
            super().handle_exit(sig, frame)

    server = Server(config)
    gc_tuning.freeze(for_latency=True)
    malloc_tuning.return_large_blocks()
    thread_tuning.take_short_turns()
    known = set(threading.enumerate())
    # uvicorn handles the signals, and raises them again at its end, which ends the process: but not
    # the first process of a container. That would wait for every thread, also for one that hangs.
    with stop_on() as stop, ended_in_time(stop, API_END_S):
        server.run(sockets=None if listening is None else [listening])
        leave_threads_behind(known)


def run_worker(settings: Settings, *, role: WorkerRole | None, supervised: bool) -> None:
    """Do the work of `role`, or of every role, until SIGTERM or SIGINT.

    Raises: CommandError when that would be unsafe on a network and is not accepted.
    """
    from cardledger.install import exposure

    _log_accepted(exposure.check(settings))
    exposure.check_metrics(settings)

    from cardledger.workers.metrics.server import MetricsPortError
    from cardledger.workers.process import main

    if role is WorkerRole.WEBHOOKS:
        os.nice(_NICE)

    def ready(process: main.WorkerProcess) -> None:
        if supervised:
            lifeline.report_ready()
            lifeline.report_alive(process.prove_progress)

    main.load(role)
    gc_tuning.freeze()
    thread_tuning.take_short_turns()
    try:
        main.run(worker_config(settings, role), ready=ready)
    except MetricsPortError as error:
        raise CommandError(str(error)) from None


def api_config(settings: Settings, *, is_on_loopback: bool = False) -> "ApiConfig":
    """Return the configuration of the API, which `is_on_loopback` only or on a network."""
    from cardledger.api.app import ApiConfig
    from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
    from cardledger.api.http.request_context import EndUserTerms
    from cardledger.workers.metrics.access import Access

    return ApiConfig(
        database_url=_database_url(settings),
        redis_url=_redis_url(settings),
        secret_key=_secret_key(settings),
        reply_timeout_s=settings.reply_timeout_s,
        sandbox=settings.sandbox,
        loopback_webhooks=settings.loopback_webhooks,
        sandbox_delay_s=settings.sandbox_delay_s,
        exchange_spread_bps=settings.exchange_spread_bps,
        rate_limit=settings.rate_limit,
        failure_limit=settings.failure_limit,
        in_progress_limit=settings.in_progress_limit,
        webhook_waiting_limit=settings.webhook_waiting_limit,
        body_timeout_s=settings.body_timeout_s,
        document_bytes=settings.document_bytes,
        documents_dir=settings.documents_dir,
        public_url=settings.public_url,
        console=ConsoleConfig(
            mode=ConsoleMode(console_mode(settings, is_on_loopback=is_on_loopback)),
            database_url=secret_of(settings.console_database_url),
        ),
        end_user_terms=(
            EndUserTerms(
                version=settings.end_user_terms_version or "", url=settings.end_user_terms_url
            )
            if settings.end_user_terms_url
            else None
        ),
        passkeys=_relying_party(settings),
        metrics=Access(
            token=secret_of(settings.metrics_token),
            is_behind_proxy=bool(settings.forwarded_allow_ips or settings.public_url),
        ),
    )


def console_mode(settings: Settings, *, is_on_loopback: bool) -> str:
    """Return what the console may do: what is set, else everything in a sandbox on loopback."""
    if settings.console is not None:
        return settings.console
    return "act" if settings.sandbox and is_on_loopback else "off"


def _relying_party(settings: Settings) -> "RelyingParty | None":
    """Return for whom passkeys are; None: the settings name no origin."""
    from cardledger.ledger.customers.authentication.passkeys import RelyingParty

    origins = key_list(settings.passkey_origins)
    if not origins:
        return None
    party = settings.passkey_relying_party or urlsplit(origins[0]).hostname or ""
    return RelyingParty(id=party, origins=tuple(origins))


def connection_limits(settings: Settings, *, open_files: int) -> "ConnectionLimits":
    """Return the limits of connections of an API process that may open `open_files` files.

    Raises: CommandError when the files are too few.
    """
    from cardledger.api.addresses import parse_networks
    from cardledger.api.connections import limits

    try:
        connections = limits.connections_of(open_files, settings.connection_limit)
    except limits.TooFewFilesError as error:
        raise CommandError(str(error), code=USAGE) from None
    share = max(1, connections // limits.ADDRESS_SHARE)
    return limits.ConnectionLimits(
        connections=connections,
        per_address=settings.address_connection_limit or share,
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
        keep_alive_s=settings.keep_alive_s,
        backlog=limits.backlog_of(open_files),
        proxies=parse_networks(settings.forwarded_allow_ips),
    )


def worker_config(settings: Settings, role: WorkerRole | None = None) -> "WorkerConfig":
    """Return the configuration of a worker."""
    from cardledger.workers.process.config import WorkerConfig

    return WorkerConfig(
        database_url=_database_url(settings),
        redis_url=_redis_url(settings),
        secret_key=_secret_key(settings),
        role=role,
        threads=settings.worker_threads,
        batch_size=settings.batch_size,
        sweep_interval_s=settings.sweep_interval_s,
        webhook_timeout_s=settings.webhook_timeout_s,
        webhook_retry_scale=settings.webhook_retry_scale,
        webhook_retention=timedelta(days=settings.webhook_retention_days),
        webhook_waiting_limit=settings.webhook_waiting_limit,
        quote_retention=timedelta(days=settings.quote_retention_days),
        sandbox=settings.sandbox,
        loopback_webhooks=settings.loopback_webhooks,
        sandbox_delay_s=settings.sandbox_delay_s,
        health_dir=settings.data_dir / HEALTH_DIR,
        metrics=_metrics_config(settings),
    )


def check_worker(settings: Settings, *, role: WorkerRole | None, of_worker_only: bool) -> list[str]:
    """Return the problems of the workers of `role` that run with this data directory.

    With `of_worker_only`, without those of the whole installation.
    """
    from cardledger.workers.process import health_file
    from cardledger.workers.process.health import role_name

    directory = settings.data_dir / HEALTH_DIR
    return health_file.problems(directory, role_name(role), of_worker_only=of_worker_only)


def _metrics_config(settings: Settings) -> "MetricsConfig | None":
    from cardledger.workers.metrics.access import Access, MetricsConfig

    if settings.metrics_port is None:
        return None
    access = Access(token=secret_of(settings.metrics_token))
    return MetricsConfig(host=settings.metrics_host, port=settings.metrics_port, access=access)


def _log_accepted(hazards: "list[Hazard]") -> None:
    for hazard in hazards:
        _log.warning("unsafe on a network, and accepted", name=hazard.name, problem=hazard.problem)


def _database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise _missing("DATABASE_URL", "PostgreSQL, with the login of its role")
    return DatabaseUrl(settings.database_url.get_secret_value())


def _redis_url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise _missing("REDIS_URL", "Redis")
    return settings.redis_url.get_secret_value()


def _secret_key(settings: Settings) -> "ServerKey":
    if settings.secret_key is None:
        raise _missing(
            "CARDLEDGER_SECRET_KEY", "at least 32 random characters, the same for every process"
        )
    from cardledger.install import credentials

    return credentials.with_others(settings, settings.secret_key.get_secret_value())


def _missing(name: str, description: str) -> CommandError:
    return CommandError(
        f"set {name} ({description}), or run `cardledger up`, which sets up everything by itself",
        code=USAGE,
    )

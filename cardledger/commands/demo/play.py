"""`cardledger demo`: a restaurant tip, simulated traffic, a verification, next steps.

Every figure that is printed comes from the run. The text is the same on a terminal, with colours
and progress bars, and in a pipe, without.
"""

import asyncio
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from cardledger.api.console.navigation import CARD_TRANSACTIONS
from cardledger.commands.demo import controller, restaurant_tip, text, verification
from cardledger.commands.demo.office import Month, Office
from cardledger.commands.demo.result import Customer, Options, Played, Result, Role
from cardledger.commands.demo.traffic import CardInUse, Sent, Traffic
from cardledger.commands.demo.verification import Verification, Webhooks
from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.config.settings import Settings
from cardledger.embedded import directories
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import credentials
from cardledger.install.http_client import HttpApi
from cardledger.install.ready_file import Running
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.supervisor.plan import Plan, Step
from cardledger.supervisor.signals import Signals
from cardledger.supervisor.system import System
from cardledger.webhooks.receiver import Receiver
from cardledger.workers.client import Client, ReplyTimeoutError, UnavailableError

_ROLES: Final = (
    Role(name="Grace Hopper", cards=2, weight=5, funds=2_000_000),
    Role(name="Alan Turing", cards=2, weight=4, funds=1_500_000),
    Role(name="Hedy Lamarr", cards=2, weight=4, funds=1_500_000),
    # These two run out of money on purpose.
    Role(name="Charles Babbage", cards=1, weight=2, funds=40_000, top_up=15_000),
    Role(name="Emmy Noether", cards=1, weight=2, funds=25_000, top_up=10_000),
)
_ROUNDS: Final = 6
_CHUNK: Final = 100  # Events between two updates of the progress bar.
_ROUND_TIMEOUT_S: Final = 60.0


def run(options: Options, *, host: str | None, port: int | None, data_dir: Path | None) -> int:
    """Run the demo; return the exit code."""
    with ExitStack() as stack:
        settings = _settings(stack, host=host, port=port, data_dir=data_dir)
        if options.finance and (data_dir is not None or settings.database_url is not None):
            raise CommandError(
                "--finance plays a month of its own: leave out --data-dir and DATABASE_URL",
                code=USAGE,
            )
        out = terminal.console()
        out.quiet = options.as_json
        result = Result(options=options)
        signals = stack.enter_context(Signals().caught())
        logs = _LogFiles(settings.data_dir)
        stack.callback(logs.close)
        system = System(
            Plan(settings=settings, any_port=True),
            log=logs.write,
            on_step=lambda step: _step(out, result, step),
        )
        story = _play_month if options.finance else _play
        try:
            story(out, system, settings, result)
            if options.as_json:
                print(json.dumps(text.as_dict(result), indent=2), flush=True)
            if options.keep:
                signals.note_only()
                signals.wait()
        except Exception as error:
            signals.note_only()
            raise _with_logs(error, logs) from error
        finally:
            signals.note_only()
            system.stop(is_urgent=lambda: signals.is_urgent)
    text.goodbye(out, kept=settings.data_dir if settings.data_dir.exists() else None)
    return 0 if result.holds else FAILURE


def _play(out: Console, system: System, settings: Settings, result: Result) -> None:
    text.title(out, result)
    running = result.running = system.start()
    result.port_was_taken = settings.port not in {0, system.port}
    if result.port_was_taken:
        text.port_taken(out, settings.port, system.port)
    database_url = DatabaseUrl(running.database_url)
    since = datetime.now(UTC)
    with (
        HttpApi(running.base_url, running.client_id, running.client_secret) as api,
        Receiver(running.webhook_public_key, running.webhook_secret) as receiver,
        _webhooks_to(api, receiver),
    ):
        result.tip = restaurant_tip.play(api, receiver, database_url)
        text.tip(out, result.tip)
        secret_key = credentials.needed_key(settings)
        result.played = _simulate_traffic(out, api, running, secret_key, result.options)
        text.traffic(out, result.played)
        webhooks = _webhooks(out, system, database_url, receiver, since)
        result.verification = _verify(out, system, database_url, webhooks)
        # Before the system stops: the last lines are printed while everything runs.
        result.seconds = time.monotonic() - result.began
        text.verification(out, result, result.verification)
        if result.options.keep:
            console = system.console_link(
                f"{CARD_TRANSACTIONS.path}/{result.tip.card_transaction_id}"
            )
            text.where_to_look(out, running, result.tip, settings.data_dir, console=console)
        else:
            text.what_next(out)


def _play_month(out: Console, system: System, settings: Settings, result: Result) -> None:
    text.title(out, result)
    month = result.month = Month()
    running = result.running = system.start()
    files = configuration.writable_directory(settings.data_dir / "october")
    office = Office(out=out, data_dir=settings.data_dir, files=files, month=month)
    controller.play(office, running)
    result.seconds = time.monotonic() - result.began
    text.month(out, result, month)


# --- simulated traffic -----------------------------------------------------------------------


def _simulate_traffic(
    out: Console,
    api: HttpApi,
    running: Running,
    secret_key: ServerKey,
    options: Options,
) -> Played:
    customers = [_customer(api, role) for role in _ROLES]
    cards = [
        CardInUse(card_id=card, weight=customer.role.weight)
        for customer in customers
        for card in customer.cards
    ]
    restaurant_tip.wait_until_active(api, [card.card_id for card in cards])
    traffic = Traffic(options.seed, options.events, cards, run_id=secrets.token_hex(4))
    played = Played(
        counts=traffic.counts,
        customers=len(customers),
        cards=len(cards),
        participants=tuple(customers),
    )
    began = time.monotonic()
    with terminal.progress(out, unit="events") as bar:
        task = bar.add_task("submitting", total=options.events)
        asyncio.run(
            _play_rounds(
                traffic,
                running,
                secret_key,
                options.events,
                top_up=lambda: _top_up(api, played),
                advance=lambda: bar.update(task, completed=traffic.counts.sent),
            )
        )
    played.seconds = time.monotonic() - began
    return played


def _customer(api: HttpApi, role: Role) -> Customer:
    customer = api.post(
        "/customers",
        {"customerType": "INDIVIDUAL", "fullName": role.name, "currencies": ["USD"]},
    )
    account = restaurant_tip.account_of(api, customer["id"])
    api.post(f"/sandbox/internal-accounts/{account}/fund", {"amount": role.funds})
    request = {"cardholderId": customer["id"], "form": "VIRTUAL", "fundingSources": [account]}
    return Customer(
        account_id=account,
        cards=tuple(api.post("/cards", request)["id"] for _ in range(role.cards)),
        role=role,
    )


async def _play_rounds(  # noqa: PLR0913 - a system, and what to play
    traffic: Traffic,
    running: Running,
    secret_key: ServerKey,
    events: int,
    *,
    top_up: Callable[[], None],
    advance: Callable[[], None],
) -> None:
    """Submit round after round, as `cardledger submit` does, with deposits in between."""
    engine = async_engine(running.database_url, keyed=True, pool_size=2)
    try:
        async with Client(
            engine,
            running.redis_url,
            secret_key=secret_key,
            reply_timeout_s=_ROUND_TIMEOUT_S,
        ) as client:
            while sent := traffic.next_round(max(events // _ROUNDS, 50)):
                await _play_round(client, traffic, sent, advance)
                await asyncio.to_thread(top_up)
    except (UnavailableError, ReplyTimeoutError) as error:
        raise CommandError(f"the simulated traffic failed: {error}") from None
    finally:
        await engine.dispose()


async def _play_round(
    client: Client, traffic: Traffic, sent: Sequence[Sent], advance: Callable[[], None]
) -> None:
    chunks = [sent[start : start + _CHUNK] for start in range(0, len(sent), _CHUNK)]
    # Everything is submitted before the first outcome is awaited.
    pending = [
        await client.enqueue([sent_event.event for sent_event in chunk], lane=Lane.BULK)
        for chunk in chunks
    ]
    async with asyncio.timeout(_ROUND_TIMEOUT_S):
        for chunk, futures in zip(chunks, pending, strict=True):
            traffic.record_outcomes(chunk, [await future for future in futures])
            advance()


def _top_up(api: HttpApi, played: Played) -> None:
    for customer in played.participants:
        if customer.role.top_up:
            fund = f"/sandbox/internal-accounts/{customer.account_id}/fund"
            api.post(fund, {"amount": customer.role.top_up})
            played.top_ups += 1
            played.topped_up += customer.role.top_up


# --- verification ----------------------------------------------------------------------------


def _webhooks(
    out: Console, system: System, database_url: DatabaseUrl, receiver: Receiver, since: datetime
) -> Webhooks:
    with terminal.progress(out, unit="webhooks") as bar:
        task = bar.add_task("delivering", total=None)
        return verification.wait_for_webhooks(
            database_url,
            receiver,
            platform_id=system.platform_id,
            since=since,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _verify(
    out: Console, system: System, database_url: DatabaseUrl, webhooks: Webhooks
) -> Verification:
    with terminal.progress(out, unit="events") as bar:
        task = bar.add_task("replaying", total=None)
        return verification.collect(
            database_url,
            platform_id=system.platform_id,
            webhooks=webhooks,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


# --- setup and logs --------------------------------------------------------------------------


def _settings(
    stack: ExitStack, *, host: str | None, port: int | None, data_dir: Path | None
) -> Settings:
    """Return the settings, with a temporary data directory unless another is needed.

    A database of the user outlives the demo, and so must the key that encrypts its secrets.
    """
    settings = configuration.load(host=host, port=port, data_dir=data_dir, log_level="error")
    if data_dir is not None or settings.database_url is not None:
        return settings
    temporary = directories.temporary("cardledger-demo-")
    stack.callback(shutil.rmtree, temporary, ignore_errors=True)
    return configuration.load(host=host, port=port, data_dir=temporary, log_level="error")


@contextmanager
def _webhooks_to(api: HttpApi, receiver: Receiver) -> Iterator[None]:
    """Send webhooks to `receiver` for the length of a block."""
    api.patch("/config", {"webhookEndpoint": receiver.url})
    try:
        yield
    finally:
        # The receiver stops; later webhooks are kept unsent.
        api.patch("/config", {"webhookEndpoint": None})


def _step(out: Console, result: Result, step: Step) -> None:
    result.steps.append(step)
    text.step(out, step)


class _LogFiles:
    """The children's logs, in a file unless something fails."""

    def __init__(self, data_dir: Path) -> None:
        self._path: Final = configuration.writable_directory(data_dir) / "demo.log"
        self._file: Final = self._path.open("w", encoding="utf-8")
        self.last: Final[list[str]] = []

    def write(self, name: str, line: str) -> None:
        text = f"{name} | {line}"
        self.last.append(text)
        del self.last[:-200]
        if not self._file.closed:
            self._file.write(text + "\n")

    def close(self) -> None:
        self._file.close()


def _with_logs(error: Exception, logs: _LogFiles) -> Exception:
    """Return `error` with the last warnings and errors of the children."""
    lines = [line for line in logs.last if "[info" not in line][-15:]
    if isinstance(error, CommandError) and lines:
        return CommandError(f"{error}\nlast log lines of the processes:\n" + "\n".join(lines))
    return error

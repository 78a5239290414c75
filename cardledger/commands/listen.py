"""`cardledger listen`: receive webhooks on this machine, verify them, show them, pass them on.

Nothing has to be reachable from outside: the system of `cardledger up` runs on this machine too.
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from rich.text import Text
from urllib3.exceptions import HTTPError

from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import Settings
from cardledger.install import ready_file as running
from cardledger.install.http_client import HttpApi
from cardledger.install.ready_file import Running
from cardledger.webhooks.receiver import Listener, Reply
from cardledger.webhooks.verification import Reason, WebhookVerificationError, verify
from cardledger.workers.process.stop_request import StopRequest, stop_on

_FORWARD_TIMEOUT: Final = urllib3.Timeout(total=15.0, connect=5.0)
_MAX_ANSWER: Final = 2**20
# What belongs to one connection (RFC 9110, 7.6.1), or is sent anew for the next.
_OF_A_CONNECTION: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_TYPE_WIDTH: Final = 34
_ID_WIDTH: Final = 44
_STATUS_WIDTH: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line."""

    port: int = 0
    secrets: Sequence[str] = ()
    public_keys: Sequence[Path] = ()
    forward_to: str | None = None
    register: bool = False
    as_json: bool = False
    ready_file: Path | None = None
    data_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What webhooks are verified with; with none of the two nothing can be."""

    secrets: Sequence[str] = ()
    public_keys: Sequence[str] = ()

    def problem(self, headers: Mapping[str, str], body: bytes) -> str | None:
        """Return why a webhook is not proven, None when it is."""
        try:
            verify(
                body,
                headers,
                secret=self.secrets or None,
                public_key=self.public_keys or None,
            )
        except WebhookVerificationError as error:
            return str(error)
        return None

    def __bool__(self) -> bool:
        return bool(self.secrets or self.public_keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One webhook, and what became of it."""

    at: datetime
    headers: Mapping[str, str]
    body: bytes
    verified: bool | None  # None: there was nothing to verify it with.
    problem: str | None
    answered: int

    @property
    def event(self) -> dict[str, Any] | None:
        """The envelope, None when the body is not a JSON object."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None


def run(options: Options) -> None:
    """Listen until SIGINT or SIGTERM.

    Raises: CommandError; BrokenPipeError when the reader of the output has closed it.
    """
    settings = configuration.load(data_dir=options.data_dir, log_level="error")
    system = _system(settings, options)
    keys = _keys(options, system)
    forward = None if options.forward_to is None else _Forward(options.forward_to)
    with stop_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as stop:
        window = _Window(stop, as_json=options.as_json)
        desk = _Desk(keys, forward, window)
        try:
            listener = Listener(desk.take, port=options.port)
        except OSError as error:
            raise CommandError(
                f"cannot listen on port {options.port}: {error.strerror}; choose another --port"
            ) from None
        with listener, _registered(listener.url, system, window, wanted=options.register):
            _say_where(window, listener.url, keys, options, system)
            stop.wait()
    if window.is_broken:
        raise BrokenPipeError


# --- one webhook ---------------------------------------------------------------------------------


class _Desk:
    """Verifies, passes on, shows and answers; used by many threads at once."""

    def __init__(self, keys: Keys, forward: "_Forward | None", window: "_Window") -> None:
        self._keys: Final = keys
        self._forward: Final = forward
        self._window: Final = window

    def take(self, headers: dict[str, str], body: bytes) -> Reply:
        """Return how to answer: as whom it was passed on to; else 401 when it is not proven."""
        at = datetime.now(UTC)
        problem = self._keys.problem(headers, body) if self._keys else None
        if self._forward is not None:
            # Verified or not: the application verifies it too, and that is being tested.
            reply = self._forward.send(headers, body)
        else:
            reply = Reply(status=401 if problem else 200)
        self._window.show(
            Shown(
                at=at,
                headers=headers,
                body=body,
                verified=problem is None if self._keys else None,
                problem=problem,
                answered=reply.status,
            )
        )
        return reply


class _Forward:
    """Passes webhooks on as they came."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CommandError(
                "--forward-to takes a URL, like http://127.0.0.1:3000/hook", code=USAGE
            )
        self._url: Final = url
        self._http: Final = urllib3.PoolManager(timeout=_FORWARD_TIMEOUT, retries=False, maxsize=16)

    def send(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the answer as it came, or 502 when there was none."""
        try:
            answer = self._http.request(
                "POST",
                self._url,
                body=body,
                headers=_passed_on(headers),
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            answer_body = answer.read(_MAX_ANSWER, decode_content=False)
            answer.close()
        except (HTTPError, OSError, ValueError) as error:
            return Reply(
                status=502,
                headers=(("content-type", "text/plain; charset=utf-8"),),
                body=f"cardledger listen: {self._url} did not answer: {error}".encode(),
            )
        return Reply(
            status=answer.status,
            headers=tuple(_passed_on(dict(answer.headers)).items()),
            body=answer_body,
        )


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_A_CONNECTION}


# --- what a person sees --------------------------------------------------------------------------


class _Window:
    """Prints webhooks, a line each; everything else goes to standard error with --json."""

    def __init__(self, stop: StopRequest, *, as_json: bool) -> None:
        self.is_broken = False
        self._stop: Final = stop
        self._as_json: Final = as_json
        self._lock: Final = threading.Lock()
        self._out: Final = terminal.console()
        self._about: Final = terminal.console(sys.stderr) if as_json else self._out

    def say(self, text: str, style: str = "") -> None:
        """Say something that is no webhook."""
        with self._lock:
            self._about.print(Text(text, style))
            self._about.file.flush()

    def show(self, one: Shown) -> None:
        """Print a webhook; end when the reader of the output has closed it."""
        with self._lock:
            try:
                if self._as_json:
                    print(as_json_line(one), flush=True)
                else:
                    self._out.print(as_text(one))
                    self._out.file.flush()
            except BrokenPipeError:
                self.is_broken = True
                self._stop.set()


def as_json_line(one: Shown) -> str:
    """Return a webhook as one line: `body` is exactly what was signed, `event` what it says."""
    return json.dumps(
        {
            "receivedAt": one.at.isoformat().replace("+00:00", "Z"),
            "verified": one.verified,
            "problem": one.problem,
            "answered": one.answered,
            "headers": dict(one.headers),
            "event": one.event,
            "body": one.body.decode(errors="replace"),
        }
    )


def as_text(one: Shown) -> Text:
    """Return a webhook as a line: time, type, id, sequence, status, answer, proven or not."""
    event = one.event or {}
    found = event.get("data")
    data = found if isinstance(found, dict) else {}
    sequence = data.get("sequence", event.get("sequence"))
    mark, style = _mark(one.verified)
    line = Text.assemble(
        (one.at.astimezone().strftime("%H:%M:%S "), "dim"),
        (mark, style),
        " ",
        (_printable(event.get("type", "(no event)")).ljust(_TYPE_WIDTH), "bold"),
        _printable(event.get("id", "")).ljust(_ID_WIDTH),
        ("" if sequence is None else f" #{_printable(sequence)}").ljust(6),
        _printable(data.get("status", data.get("state", ""))).ljust(_STATUS_WIDTH),
        (f" {one.answered}", "green" if one.answered < 300 else "red"),  # noqa: PLR2004 - 2xx
    )
    if one.problem:
        line.append(f"  {_printable(one.problem)}", "red")
    return line


def _printable(value: object) -> str:
    """Return a stranger's text without what would move the cursor or start a line of its own."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(value)[:200])


def _mark(verified: bool | None) -> tuple[str, str]:  # noqa: FBT001 - three answers
    """Return ✓, ✗ or ? and how it looks; letters where the terminal has no such signs."""
    if verified is None:
        return "?", "yellow"
    sign, plain, style = ("✓", "y", "green") if verified else ("✗", "n", "red")
    try:
        sign.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain, style
    return sign, style


def _say_where(
    window: _Window, url: str, keys: Keys, options: Options, system: Running | None
) -> None:
    window.say(f" listening on {url}", "bold")
    if options.forward_to is not None:
        window.say(f" passing on to {options.forward_to}, whose answers are given back")
    if not keys:
        window.say(
            " nothing is verified: there is no --secret and no --public-key, and no system runs"
            " here that could be asked",
            "yellow",
        )
    if not options.register:
        base_url = system.base_url if system else "$BASE_URL"
        window.say(" to have webhooks sent here (or use --register):")
        window.say(
            f'   curl -u "$CLIENT_ID:$CLIENT_SECRET" -X PATCH {base_url}/config \\\n'
            f"     -H 'Content-Type: application/json' -d '{{\"webhookEndpoint\":\"{url}\"}}'",
            "cyan",
        )
    window.say(" Ctrl-C ends it")


# --- around it -----------------------------------------------------------------------------------


def _system(settings: Settings, options: Options) -> Running | None:
    """Return the system to listen to, if it can be found.

    Raises: CommandError when it was asked for, and cannot.
    """
    if options.ready_file is not None:
        system = running.read(options.ready_file)
        if system is None:
            raise CommandError(
                f"{options.ready_file} is not a ready file of `cardledger up`", code=USAGE
            )
    else:
        system = running.find(settings.data_dir)
    if system is None and options.register:
        raise CommandError(
            f"no system runs in {settings.data_dir} to register with; start it"
            " with `cardledger up`, or name its --data-dir or --ready-file"
        )
    return system


def _keys(options: Options, system: Running | None) -> Keys:
    """Return the keys that were given, else those of the system.

    Raises: CommandError for a key that can verify nothing.
    """
    if options.secrets or options.public_keys:
        keys = Keys(
            secrets=[_secret(given) for given in options.secrets],
            public_keys=[_text(path) for path in options.public_keys],
        )
    elif system is not None:
        keys = Keys(secrets=[system.webhook_secret], public_keys=[system.webhook_public_key])
    else:
        return Keys()
    _check(keys)
    return keys


def _check(keys: Keys) -> None:
    for each in (Keys(secrets=keys.secrets), Keys(public_keys=keys.public_keys)):
        try:
            if each:
                verify(b"", {}, secret=each.secrets or None, public_key=each.public_keys or None)
        except WebhookVerificationError as error:
            if error.reason is Reason.NO_KEY:
                raise CommandError(str(error), code=USAGE) from None


def _secret(given: str) -> str:
    return _text(Path(given[1:])).strip() if given.startswith("@") else given


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise CommandError(f"cannot read {path}", code=USAGE) from None


@contextmanager
def _registered(
    url: str, system: Running | None, window: _Window, *, wanted: bool
) -> Iterator[None]:
    """Have the platform's webhooks sent to `url` for the length of a block, if that is wanted."""
    if not wanted:
        yield
        return
    assert system is not None, "_system has refused"
    with HttpApi(system.base_url, system.client_id, system.client_secret) as api:
        before = api.get("/config").get("webhookEndpoint")
        api.patch("/config", {"webhookEndpoint": url})
        window.say(f" registered; {before or 'no endpoint'} comes back at the end")
        try:
            yield
        finally:
            _put_back(api, url, before, window)


def _put_back(api: HttpApi, url: str, before: str | None, window: _Window) -> None:
    """Restore the endpoint, unless it was changed meanwhile."""
    try:
        if api.get("/config").get("webhookEndpoint") == url:
            api.patch("/config", {"webhookEndpoint": before})
    except CommandError as error:
        window.say(f" the webhook endpoint is still {url}, and was {before}: {error}", "yellow")

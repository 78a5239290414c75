"""Processes that would be unsafe on a network refuse to start, before anything connects."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from redis import Redis

from cardledger.embedded.servers import DatabaseUrl, OwnRedis
from tests.system.support import COMMAND, environment, run
from tests.waiting import eventually, limit_s

EVERYWHERE = "0.0.0.0"  # noqa: S104 - the point
KEY = "a secret key that only tests use, long enough"
# Nothing answers there, so a message about it would show that something has connected.
LOCAL = {
    "DATABASE_URL": "postgresql://app:word@127.0.0.1:1/x",
    "REDIS_URL": "redis://:word@127.0.0.1:1/0",
    "CARDLEDGER_SECRET_KEY": KEY,
}
SAFE = {"CARDLEDGER_SANDBOX": "false", "CARDLEDGER_FORWARDED_ALLOW_IPS": "192.0.2.1"}
REMOTE_POSTGRESQL = {"DATABASE_URL": "postgresql://app:word@127.0.0.1:1,192.0.2.9:1/x"}
REMOTE_REDIS = {"REDIS_URL": "redis://192.0.2.9:1/0"}


@pytest.mark.parametrize(
    ("arguments", "env", "names"),
    [
        (["api", "--host", EVERYWHERE], {}, ["sandbox", "plaintext"]),
        (["api", "--host", "::"], {"CARDLEDGER_SANDBOX": "false"}, ["plaintext"]),
        (["api"], {"CARDLEDGER_HOST": EVERYWHERE}, ["sandbox", "plaintext"]),
        (
            ["api", "--host", EVERYWHERE],
            {**SAFE, "REDIS_URL": "redis://127.0.0.1:1/0"},
            ["redis-without-password"],
        ),
        (["api"], REMOTE_POSTGRESQL, ["postgresql-unverified"]),
        (["worker"], REMOTE_POSTGRESQL, ["postgresql-unverified"]),
        (["worker", "--only", "events"], REMOTE_REDIS, ["redis-without-password"]),
        (["worker", "--only", "webhooks"], REMOTE_REDIS, ["redis-without-password"]),
        (["up", "--host", EVERYWHERE], {}, ["sandbox", "plaintext"]),
        (["up"], REMOTE_POSTGRESQL, ["postgresql-unverified"]),
        (["demo", "--host", EVERYWHERE], {}, ["sandbox", "plaintext"]),
    ],
)
def test_what_is_unsafe_does_not_start(
    arguments: list[str], env: dict[str, str], names: list[str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    given = {"CARDLEDGER_DATA_DIR": str(data), "CARDLEDGER_PORT": "0"} | LOCAL | env

    finished = run(*arguments, env=environment(**given))

    assert finished.returncode == 2, finished.stderr
    assert finished.stderr.startswith("cardledger: not started, because this is unsafe")
    refused = [line.split(":")[0].strip() for line in finished.stderr.splitlines()[1::2]]
    assert refused[: len(names)] == names
    assert finished.stderr.endswith(f"CARDLEDGER_ACCEPT_UNSAFE={','.join(names)}\n")
    assert "word" not in finished.stderr.replace("password", "")
    assert not (data / "postgres").exists()


@contextmanager
def api_on(
    listening: socket.socket, env: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `cardledger api` on an inherited socket."""
    serving = [*COMMAND, "api", "--listen-fd", str(listening.fileno())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            serving, env=env, pass_fds=[listening.fileno()], stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(limit_s())


def test_an_inherited_socket_is_judged_by_its_address(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        socket.create_server((EVERYWHERE, 0)) as listening,
        api_on(listening, environment(**LOCAL, CARDLEDGER_HOST="127.0.0.1"), log) as process,
    ):
        assert process.wait(limit_s()) == 2

        port = listening.getsockname()[1]
        assert f"sandbox: the sandbox is on, and the API listens on 0.0.0.0:{port}" in (
            log.read_text()
        )


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [(SAFE, []), ({"CARDLEDGER_ACCEPT_UNSAFE": "sandbox,plaintext"}, ["sandbox", "plaintext"])],
)
def test_an_api_that_is_safe_or_accepted_serves_a_network(
    settings: dict[str, str],
    accepted: Sequence[str],
    app_database_url: DatabaseUrl,
    redis_url: str,
    tmp_path: Path,
) -> None:
    if "REDIS_URL" in os.environ:  # A given server may have no password.
        extra = f"{settings.get('CARDLEDGER_ACCEPT_UNSAFE', '')},redis-without-password"
        settings = settings | {"CARDLEDGER_ACCEPT_UNSAFE": extra}
    log = tmp_path / "log"
    env = environment(
        **LOCAL
        | settings
        | {"DATABASE_URL": app_database_url, "REDIS_URL": redis_url}
        | {"CARDLEDGER_LOG_FORMAT": "json"}
    )
    with (
        socket.create_server((EVERYWHERE, 0)) as listening,
        api_on(listening, env, log) as process,
    ):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/healthz"
        eventually(lambda: process.poll() is not None or _answers(url))

        assert process.poll() is None, log.read_text()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    warned = [line["name"] for line in lines if line["event"].startswith("unsafe on a network")]
    assert [name for name in warned if name != "redis-without-password"] == accepted


def _answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(url, timeout=limit_s(), trust_env=False).is_success
    return False


def test_a_misspelt_exception_is_an_error() -> None:
    finished = run("worker", env=environment(**LOCAL, CARDLEDGER_ACCEPT_UNSAFE="sandbx"))

    assert finished.returncode == 2
    assert "CARDLEDGER_ACCEPT_UNSAFE: unknown exception 'sandbx': did you mean sandbox?" in (
        finished.stderr
    )


def test_doctor_checks_what_must_be_safe_for_production(redis_url: str, tmp_path: Path) -> None:
    env = environment(
        CARDLEDGER_DATA_DIR=str(tmp_path),
        DATABASE_URL="postgresql://127.0.0.1:1/x",
        REDIS_URL=redis_url,
        CARDLEDGER_FORWARDED_ALLOW_IPS="127.0.0.1",
        CARDLEDGER_ACCEPT_UNSAFE="sandbox,loopback-webhooks",
    )

    printed = run("doctor", "--production", "--json", env=env).stdout
    usual = run("doctor", "--json", env=env).stdout

    states = {one["name"]: one["state"] for one in json.loads(printed)["findings"]}
    assert states["sandbox"] == states["loopback-webhooks"] == "fail"
    assert states["plaintext"] == states["postgresql-unverified"] == "ok"
    if "REDIS_URL" not in os.environ:
        assert states["Redis login"] == "ok"
    assert "sandbox" not in {one["name"] for one in json.loads(usual)["findings"]}


def test_doctor_finds_a_redis_that_asks_for_no_password(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    server.start()
    try:
        before = _redis_login(server.url, tmp_path)
        with Redis.from_url(server.url) as client:
            client.config_set("requirepass", "")
        after = _redis_login(server.url, tmp_path)
    finally:
        server.stop()

    assert (before, after) == ("ok", "fail")


def _redis_login(redis_url: str, data_dir: Path) -> str:
    env = environment(CARDLEDGER_DATA_DIR=str(data_dir), REDIS_URL=redis_url)
    printed = run("doctor", "--production", "--json", env=env).stdout
    states = {one["name"]: one["state"] for one in json.loads(printed)["findings"]}
    return str(states["Redis login"])

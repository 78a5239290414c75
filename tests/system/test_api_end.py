"""An API process ends in time, whatever it waits for."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.workers.process.end import EXIT_CODE
from storm.proxy import free_port
from tests.api.support import SECRET_KEY, Tenant, new_tenant
from tests.proxy import proxy_to, through
from tests.system.support import COMMAND, environment
from tests.waiting import eventually, limit_s

END_S = 30


@contextmanager
def api(
    command: Sequence[str], log: Path, url: DatabaseUrl, redis_url: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    settings = environment(
        DATABASE_URL=url,
        REDIS_URL=redis_url,
        CARDLEDGER_SECRET_KEY=SECRET_KEY,
        CARDLEDGER_PORT=str(port),
    )
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env=settings, stdin=subprocess.PIPE, stderr=output, stdout=output
        ) as process,
    ):
        try:
            eventually(lambda: is_ready(port), process=process)
            yield process, port
        finally:
            process.kill()


def is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=limit_s()).is_success
    except httpx2.TransportError:
        return False


def exit_code(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return with which code `process` ends after SIGTERM."""
    process.terminate()
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not ended within {END_S} s: {log.read_text()[-2000:]}")


def ask(port: int, tenant: Tenant) -> socket.socket:
    """Send a request for which PostgreSQL is needed; the response is not waited for."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=limit_s())
    credentials = httpx2.BasicAuth(tenant.client_id, tenant.client_secret)
    request = next(credentials.auth_flow(httpx2.Request("GET", "http://x/2025-10-13/config")))
    authorization = request.headers["authorization"]
    head = f"GET /2025-10-13/config HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n\r\n"
    opened.sendall(head.encode())
    return opened


def test_while_postgresql_is_silent_the_api_ends_in_time(
    tmp_path: Path, app_database_url: DatabaseUrl, redis_url: str
) -> None:
    tenant, log = new_tenant(app_database_url), tmp_path / "log"
    with (
        proxy_to(app_database_url) as proxy,
        api([*COMMAND, "api"], log, through(app_database_url, proxy), redis_url) as (process, port),
    ):
        with closing(ask(port, tenant)) as served:
            assert served.recv(100).startswith(b"HTTP/1.1 200 ")
        proxy.freeze()
        with closing(ask(port, tenant)):
            eventually(lambda: proxy.held_chunks)
            exit_code(process, log)


# The kernel ignores the default of a signal for the first process of a container, as it ignores
# what a parent has set to be ignored.
HANGING = """
import asyncio, gc, signal, sys, threading
from cardledger.config import configuration
from cardledger.supervisor import processes

def hang():
    sys.stdin.readline()
    wait = threading.Event().wait
    if sys.argv[1] == "executor":
        [loop] = [each for each in gc.get_objects() if isinstance(each, asyncio.AbstractEventLoop)]
        loop.call_soon_threadsafe(loop.run_in_executor, None, wait)
    else:
        threading.Thread(target=wait, name="hanging", daemon=False).start()
    print("hangs", flush=True)

signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=hang, daemon=True).start()
processes.run_api(configuration.load(), listen_fd=None, supervised=False)
"""


@pytest.mark.parametrize(("where", "code"), [("executor", EXIT_CODE), ("thread", 0)])
def test_the_first_process_of_a_container_ends_in_time_although_a_thread_hangs(
    tmp_path: Path, app_database_url: DatabaseUrl, redis_url: str, where: str, code: int
) -> None:
    command, log = [sys.executable, "-c", HANGING, where], tmp_path / "log"
    with api(command, log, app_database_url, redis_url) as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        eventually(lambda: "hangs" in log.read_text(), process=process)

        assert exit_code(process, log) == code

"""The other platform: authorizations at a steady rate, from a process of its own.

A process, because attacks at full speed would delay samples that are taken in theirs. A sample
begins when its request is due, whether or not earlier ones have been answered.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
from asyncio import Task
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from attack.judge import Sample
from attack.wire import Address, Connection, request

MERCHANT: Final = {"descriptor": "CORNER BAKERY 0417", "mcc": "5812", "country": "US"}

_DECLINED_EVERY: Final = 10
"""Every tenth authorization is above the balance, so that answers of both kinds can be forged."""

_ROOT: Final = Path(__file__).parents[1]
_TOO_MUCH: Final = 10**14
_TIMEOUT_S: Final = 20.0
_STOP_S: Final = _TIMEOUT_S + 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Whose authorizations are sent, where to, and how many a second."""

    host: str
    port: int
    base: str
    authorization: str
    cards: Sequence[str]
    rate: float


class Victim:
    """The process and the samples that it has taken."""

    def __init__(self, plan: Plan) -> None:
        """Describe it; `start` starts it."""
        self._plan: Final = plan
        self._guard: Final = threading.Lock()
        self._samples: Final[list[Sample]] = []
        self._child: subprocess.Popen[str] | None = None
        self._reader: Final = threading.Thread(target=self._read, name="victim", daemon=True)

    def __enter__(self) -> Self:
        """Begin to send."""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "attack.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asdict(self._plan)) + "\n")
        self._child.stdin.flush()
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send nothing more; return when every request has its answer, or has timed out."""
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def between(self, began: float, ended: float) -> list[Sample]:
        """Return the samples that were due in this time, once the last of them is complete."""
        with self._guard:
            return [sample for sample in self._samples if began <= sample.due < ended]

    @property
    def samples(self) -> list[Sample]:
        """All samples so far."""
        with self._guard:
            return list(self._samples)

    def _read(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        for line in self._child.stdout:
            sample = Sample(*json.loads(line))
            with self._guard:
                self._samples.append(sample)


async def _send_all(plan: Plan) -> None:
    address = Address(plan.host, plan.port, plan.base)
    idle: list[Connection] = []
    tasks: set[Task[None]] = set()
    cards = itertools.cycle(plan.cards)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))

    async def send(due: float, whole: bytes) -> None:
        connection = idle.pop() if idle else Connection(address, timeout_s=_TIMEOUT_S)
        answer = await connection.exchange(whole)
        idle.append(connection)
        body = answer.json()
        found = body if isinstance(body, dict) else {}
        sample = due, time.time() - due, answer.status, found.get("id", ""), found.get("status", "")
        print(json.dumps(sample), flush=True)

    started = time.time()
    for number in itertools.count():
        due = started + number / plan.rate
        if (early := due - time.time()) > 0:
            await asyncio.sleep(early)
        if ended.done():
            break
        amount = _TOO_MUCH if number % _DECLINED_EVERY == 0 else 100
        task = asyncio.create_task(send(due, authorization(plan, address, next(cards), amount)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


def authorization(plan: Plan, address: Address, card: str, amount: int) -> bytes:
    """Return the request of an authorization."""
    body = {"amount": amount, "currency": {"code": "USD"}, "merchant": MERCHANT}
    path = f"/sandbox/cards/{card}/simulate/authorization"
    return request("POST", address, path, authorization=plan.authorization, body=body)


if __name__ == "__main__":
    asyncio.run(_send_all(Plan(**json.loads(sys.stdin.readline()))))

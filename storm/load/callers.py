"""The load: every interface at once, at a steady rate, with callers who retry as it requires.

A caller retries with the same reference, or the same `Idempotency-Key`, until it receives an
outcome. An authorization is retried with a fresh `decideBy`, because the first one has passed.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import httpx2

from cardledger.api import BASE_PATH
from cardledger.ledger.messaging.inbox import DEPOSIT, Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import Client, ReplyTimeoutError, UnavailableError
from storm.load import batches, payers
from storm.load.batches import Attempt, Batches
from storm.load.bodies import MERCHANT, SHARES, follow_ups, without_deadline
from storm.load.journal import Answer, Called, Journal, Sent
from storm.load.payers import Payer, Payments
from storm.load.population import Cardholder
from storm.system import CLIENT, System

DECIDE_WITHIN_S: Final = 2.0

_SOURCE: Final = "storm"
_OPENING: Final = 500_000
_BEAT_S: Final = 0.02
_UNDER_WAY_LIMIT: Final = 150  # Callers that wait at once; more would only be a longer queue.
_RETRY_S: Final = (0.2, 0.5, 1.0, 2.0)  # The last one again and again.
_PATIENCE_S: Final = 120.0  # After the end of the load, for the retries that are under way.
_HTTP_TIMEOUT_S: Final = 6.0
_RETRIED: Final = {408, 425, 429, 500, 502, 503, 504}


class Load:
    """Sends until `stop`, in a thread with an event loop of its own."""

    def __init__(  # noqa: PLR0913 - each by name
        self,
        system: System,
        cardholders: Sequence[Cardholder],
        customers: Sequence[Payer],
        journal: Journal,
        *,
        seed: int,
        rate: float,
    ) -> None:
        """Send `rate` events a second, chosen by `seed`."""
        self._system: Final = system
        self._cardholders: Final = cardholders
        self._journal: Final = journal
        self._chance: Final = random.Random(seed)
        self._payments: Final = Payments(customers, self._chance, self._call)
        self._batches: Final = Batches(
            system, event_of=self._bulk_event, note=self._sent, retry=self._retry
        )
        self._rate: Final = rate
        self._name: Final = f"s{seed}"
        self._number = 0
        self._stopping: Final = threading.Event()
        self._giving_up_at = float("inf")
        self._failure: BaseException | None = None
        self._thread: Final = threading.Thread(target=self._run, name="load", daemon=True)
        self.skipped = 0
        self.is_warm: Final = threading.Event()

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Send nothing new; return when every caller has its answer, or has given up."""
        self._giving_up_at = time.monotonic() + patience_s
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what ended the load, if it has ended by itself."""
        if self._failure is not None:
            raise self._failure

    # --- the loop ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._send_all())
        except BaseException as error:  # noqa: BLE001 - raised again where the storm is steered
            self._failure = error
            self.is_warm.set()

    async def _send_all(self) -> None:
        access = self._system.sandbox.access if self._system.sandbox else None
        assert access is not None
        engine = async_engine(self._system.database_url(CLIENT), keyed=True, pool_size=8)
        http = httpx2.AsyncClient(
            base_url=f"{self._system.base_url}{BASE_PATH}",
            auth=(access.client_id, access.client_secret),
            timeout=_HTTP_TIMEOUT_S,
            trust_env=False,
            limits=httpx2.Limits(max_connections=_UNDER_WAY_LIMIT),
        )
        try:
            async with (
                http,
                Client(
                    engine,
                    self._system.redis_url(CLIENT),
                    secret_key=self._system.secret_key,
                    reply_timeout_s=4,
                ) as client,
            ):
                self._client, self._http = client, http
                await asyncio.gather(*(self._open_account(one) for one in self._cardholders))
                await self._payments.open()
                self.is_warm.set()
                watch = asyncio.create_task(self._watch_loop())
                try:
                    await self._send_paced()
                finally:
                    watch.cancel()
        finally:
            await engine.dispose()

    async def _open_account(self, cardholder: Cardholder) -> None:
        for account in cardholder.accounts:
            await self._submit(cardholder, self._deposit(str(account), _OPENING), "deposit")

    async def _watch_loop(self) -> None:
        """Note when this event loop stands still: the machine has other work, or too little."""
        while True:
            before = time.time()
            await asyncio.sleep(_BEAT_S)
            if (now := time.time()) - before > 2 * _BEAT_S:
                self._journal.stalls.append((before, now))

    async def _send_paced(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        began = time.monotonic()
        number = 0
        interfaces = list(SHARES)
        weights = list(SHARES.values())
        while not self._stopping.is_set():
            number += 1
            await asyncio.sleep(max(began + number / self._rate - time.monotonic(), 0))
            # The choices come first, so that they are the same whatever is skipped.
            interface = self._chance.choices(interfaces, weights)[0]
            cardholder = self._chance.choice(self._cardholders)
            if len(under_way) >= _UNDER_WAY_LIMIT:
                self.skipped += 1
                continue
            task = asyncio.create_task(self._use(interface, cardholder))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            task.add_done_callback(self._note)
        while under_way and time.monotonic() < self._giving_up_at:
            await asyncio.wait(under_way, timeout=1)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _note(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error

    async def _use(self, interface: str, cardholder: Cardholder) -> None:
        if interface in payers.INTERFACES:
            await self._payments.use(interface)
        elif interface in batches.SHARES:
            count = self._chance.randint(1, batches.EVENTS_LIMIT)
            await self._batches.use(interface, cardholder, count, self._http)
        else:
            await self._interfaces[interface](self, cardholder)

    # --- interfaces ------------------------------------------------------------------------------

    async def _live(self, cardholder: Cardholder) -> None:
        """Authorize, and often clear a little later; or clear without an authorization."""
        if cardholder.purchases and self._chance.random() < 0.45:
            await self._clear(cardholder, Lane.LIVE)
            return
        token, amount = self._token(), self._chance.randint(100, 9_000)
        event = self._event("AUTHORIZATION", cardholder, token, amount)
        if self._chance.random() < 0.1 and cardholder.to_close:
            event["cardId"] = f"Card:{cardholder.to_close[0]}"
        answer = await self._submit(cardholder, event, "live", deadline=True)
        if answer is not None and "APPLIED" in {answer.outcome, answer.first_outcome}:
            cardholder.purchases.append((token, amount, event["cardId"]))

    async def _bulk(self, cardholder: Cardholder) -> None:
        """Enqueue a few events in the bulk lane, and wait for their outcomes afterwards."""
        events = [self._bulk_event(cardholder) for _ in range(self._chance.randint(1, 6))]
        notes = [self._sent(cardholder, event, "bulk", Lane.BULK) for event in events]
        while not self._has_lost_patience:
            for note in notes:
                note.attempts += 1
            try:
                futures = await self._client.enqueue(events, lane=Lane.BULK)
            except UnavailableError:
                self._journal.count_error("bulk: UnavailableError")
                await self._back_off(notes[0].attempts)
                continue
            accepted = time.time()
            for note in notes:
                note.acknowledged = note.acknowledged or accepted
            for note, future in zip(notes, futures, strict=True):
                self._note_answer(note, await future, None)
            return

    def _bulk_event(self, cardholder: Cardholder) -> dict[str, Any]:
        if cardholder.purchases and self._chance.random() < 0.6:
            token, amount, card = cardholder.purchases.pop(0)
            return self._event("CLEARING", cardholder, token, amount, cardId=card, final=True)
        if self._chance.random() < 0.3:
            # A force post: the network has moved the money without asking.
            return self._event(
                "CLEARING", cardholder, self._token(), self._chance.randint(100, 4_000)
            )
        return self._event(
            "AUTHORIZATION", cardholder, self._token(), self._chance.randint(100, 4_000)
        )

    async def _over_http(self, cardholder: Cardholder) -> None:
        """Simulate a purchase: authorize, then clear."""
        card = f"/sandbox/cards/Card:{cardholder.card_id}/simulate"
        amount = self._chance.randint(100, 9_000)
        body = {"amount": amount, "currency": {"code": "USD"}, "merchant": MERCHANT}
        answer = await self._call("POST", f"{card}/authorization", body)
        if answer is None or answer.get("status") != "AUTHORIZED" or self._chance.random() < 0.3:
            return
        tip = self._chance.choice([0, 0, amount // 5])
        clearing = {"cardTransactionId": answer["id"], "amount": amount + tip, "final": True}
        await self._call("POST", f"{card}/clearing", clearing)

    async def _credit(self, cardholder: Cardholder) -> None:
        """Ask for a credit of the cardholder, then settle it, more or less of it, or not at all."""
        token, amount = self._token(), self._chance.randint(100, 9_000)
        asked = self._event("CREDIT_AUTHORIZATION", cardholder, token, amount)
        answer = await self._submit(cardholder, asked, "credit")
        settled = self._chance.choice([0, amount // 2 + 1, amount, amount + 50])
        if answer is not None and settled:
            event = self._event("RETURN", cardholder, token, settled)
            await self._submit(cardholder, event, "credit")

    async def _follow_up(self, cardholder: Cardholder) -> None:
        """Ask for more on a purchase, state its total, or take back a part of it or all."""
        if not cardholder.purchases:
            return
        which = self._chance.randrange(len(cardholder.purchases))
        # Nothing else concerns it meanwhile: the order of two events would be left to chance.
        token, amount, card = cardholder.purchases.pop(which)
        kind, of_event, left = self._chance.choice(follow_ups(amount))
        event = self._event(kind, cardholder, token, of_event, cardId=card)
        answer = await self._submit(cardholder, event, "follow-up")
        if answer is not None and left:
            is_applied = "APPLIED" in {answer.outcome, answer.first_outcome}
            cardholder.purchases.append((token, left if is_applied else amount, card))

    async def _duplicate(self, _: Cardholder) -> None:
        """Submit once more what has been decided: its money must not move again."""
        first = self._decided()
        if first is not None:
            await self._attempt(first, without_deadline(first.body), deadline=False)

    async def _reuse(self, _: Cardholder) -> None:
        """Use a key again for another body: it has to be refused."""
        first = self._decided()
        if first is None or "amount" not in first.body:
            return
        body = {**without_deadline(first.body), "amount": first.body["amount"] + 1}
        began = time.time()
        note = Sent(first.key, "reuse", first.customer_id, first.lane, body, began, is_reuse=True)
        await self._attempt(self._journal.add(note), body, deadline=False)

    def _decided(self) -> Sent | None:
        """Choose one of the latest events that have been decided."""
        done = [one for one in list(self._journal.events.values())[-400:] if one.answers]
        return self._chance.choice(done) if done else None

    async def _deposit_over_http(self, cardholder: Cardholder) -> None:
        account = self._chance.choice(cardholder.accounts)
        path = f"/sandbox/internal-accounts/InternalAccount:{account}/fund"
        await self._call("POST", path, {"amount": self._chance.randint(1_000, 60_000)})

    async def _transfer(self, _: Cardholder) -> None:
        having = [one for one in self._cardholders if one.agent_token]
        if not having:
            return
        cardholder = self._chance.choice(having)
        source, destination = self._chance.sample(cardholder.accounts, 2)
        body = {
            "source": {"accountId": f"InternalAccount:{source}"},
            "destination": {"accountId": f"InternalAccount:{destination}"},
            "amount": self._chance.randint(100, 20_000),
        }
        await self._call("POST", "/agents/me/transfer-out", body, token=cardholder.agent_token)

    async def _change_funding_source(self, cardholder: Cardholder) -> None:
        account = self._chance.choice(cardholder.accounts)
        body = {"fundingSources": [f"InternalAccount:{account}"]}
        await self._call("PATCH", f"/cards/Card:{cardholder.card_id}", body)

    async def _close_card(self, cardholder: Cardholder) -> None:
        if cardholder.to_close:
            card = cardholder.to_close.pop(0)
            await self._call("PATCH", f"/cards/Card:{card}", {"state": "CLOSED"})

    _interfaces: Final[dict[str, Callable[["Load", Cardholder], Coroutine[Any, Any, None]]]] = {
        "live": _live,
        "bulk": _bulk,
        "http": _over_http,
        "credit": _credit,
        "duplicate": _duplicate,
        "reuse": _reuse,
        "deposit": _deposit_over_http,
        "transfer": _transfer,
        "funding source": _change_funding_source,
        "card closure": _close_card,
        "follow-up": _follow_up,
    }

    # --- one event ----------------------------------------------------------------------------

    async def _clear(self, cardholder: Cardholder, lane: Lane) -> None:
        which = self._chance.randrange(len(cardholder.purchases))
        token, amount, card = cardholder.purchases.pop(which)
        tip = self._chance.choice([0, 0, amount // 5])
        event = self._event("CLEARING", cardholder, token, amount + tip, cardId=card, final=True)
        await self._submit(cardholder, event, "live", lane=lane)

    async def _submit(
        self,
        cardholder: Cardholder,
        event: dict[str, Any],
        interface: str,
        *,
        lane: Lane = Lane.LIVE,
        deadline: bool = False,
    ) -> Answer | None:
        return await self._attempt(
            self._sent(cardholder, event, interface, lane), event, deadline=deadline
        )

    async def _attempt(self, note: Sent, event: dict[str, Any], *, deadline: bool) -> Answer | None:
        """Submit until there is an outcome; with a `deadline`, each attempt has a fresh one."""
        while not self._has_lost_patience:
            note.attempts += 1
            decide_by = time.time() + DECIDE_WITHIN_S if deadline else None
            if decide_by is not None:
                event["decideBy"] = datetime.fromtimestamp(decide_by, UTC).isoformat()
                note.body = note.body if note.attempts > 1 else dict(event)
            try:
                if event["type"] == DEPOSIT:
                    outcome = await self._client.deposit(
                        platform_id=self._platform_id(),
                        account_id=Id.parse(event["accountId"]),
                        amount=event["amount"],
                        source=event["source"],
                        reference=event["reference"],
                    )
                else:
                    [outcome] = await self._client.submit([event], lane=note.lane)
            except (UnavailableError, ReplyTimeoutError) as error:
                self._journal.count_error(f"{note.interface}: {type(error).__name__}")
                await self._back_off(note.attempts)
                continue
            return self._note_answer(note, outcome, decide_by)
        return None

    def _note_answer(self, note: Sent, outcome: Outcome, decide_by: float | None) -> Answer:
        at = time.time()
        first = outcome.first_outcome
        answer = Answer(outcome.outcome.value, outcome.reason, first and first.value, at, decide_by)
        note.answers.append(answer)
        note.acknowledged = note.acknowledged or at
        return answer

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any], *, token: str | None = None
    ) -> Mapping[str, Any] | None:
        """Send a request until it succeeds or is refused for good; return its answer."""
        headers = {"Idempotency-Key": f"{self._name}-{self._next()}"} if method == "POST" else {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        note = self._journal.add_call(Called(method, path, body, time.time()))
        while not self._has_lost_patience:
            try:
                sent = self._http.build_request(method, path, json=body, headers=headers)
                # The agent's own credentials take the place of the platform's.
                auth = None if token is not None else httpx2.USE_CLIENT_DEFAULT
                response = await self._http.send(sent, auth=auth)
            except httpx2.TransportError as error:
                note.statuses.append(0)
                self._journal.count_error(f"HTTP: {type(error).__name__}")
            else:
                note.statuses.append(response.status_code)
                if response.is_success:
                    note.answer, note.answered = response.json(), time.time()
                    return note.answer
                # Of the conflicts, only this one asks for the same request once more.
                is_race = "modified concurrently; retry." in response.text
                if response.status_code not in _RETRIED and not is_race:
                    note.refusal = response.text[:500]
                    return None
                note.last_error = response.text[:300]
                self._journal.count_error(f"HTTP: {response.status_code}")
            await self._back_off(len(note.statuses))
        return None

    async def _retry(self, notes: Sequence[Sent], attempt: Attempt) -> None:
        while not self._has_lost_patience:
            for note in notes:
                note.attempts += 1
            error = await attempt()
            if error is None:
                return
            self._journal.count_error(f"{notes[0].interface}: {error}")
            await self._back_off(notes[0].attempts)

    @staticmethod
    async def _back_off(attempts: int) -> None:
        await asyncio.sleep(_RETRY_S[min(attempts, len(_RETRY_S)) - 1])

    # --- bodies --------------------------------------------------------------------------------

    @property
    def _has_lost_patience(self) -> bool:
        return time.monotonic() > self._giving_up_at

    def _platform_id(self) -> Any:  # noqa: ANN401 - an id
        return self._cardholders[0].owner.platform_id

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _token(self) -> str:
        return f"{self._name}-T{self._next()}"

    def _sent(
        self, cardholder: Cardholder, event: dict[str, Any], interface: str, lane: Lane
    ) -> Sent:
        key = (event["source"], event["reference"])
        customer = cardholder.owner.customer_id
        return self._journal.add(Sent(key, interface, customer, lane, dict(event), time.time()))

    def _event(
        self,
        kind: str,
        cardholder: Cardholder,
        token: str,
        amount: int,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        return {
            "type": kind,
            "source": _SOURCE,
            "reference": f"{self._name}-{self._next()}",
            "issuerTransactionToken": token,
            "cardId": f"Card:{cardholder.card_id}",
            "amount": amount,
            "currency": "USD",
            "merchant": MERCHANT,
            **fields,
        }

    def _deposit(self, account_id: str, amount: int) -> dict[str, Any]:
        return {
            "type": DEPOSIT,
            "source": _SOURCE,
            "reference": f"{self._name}-{self._next()}",
            "accountId": account_id,
            "amount": amount,
        }

"""The promises, checked against the callers' answers and the record."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from cardledger.ledger.audit import payments, verification
from cardledger.ledger.messaging import canaries
from cardledger.ledger.messaging.inbox import DEPOSIT, TRANSFER
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.schema.ids import Id
from storm.checks.record import Decision, Record, key_of
from storm.checks.replay import Replay
from storm.load.journal import Answer, Called, Journal, Key, Sent
from storm.system import System
from tests.storm import FlakyReceiver

EXAMPLES: Final = 5
_MONEY: Final = {"APPLIED", "DECLINED", "IGNORED", "PARKED"}
# An event that a simulator has written for a state that has passed is written anew, and has moved
# nothing: the replay finds what stands in SUSPENSE of it.
_EXPECTED_REJECTIONS: Final = {"OUTDATED", "KEY_REUSED"}
_SERVER_ERROR: Final = 500
_NOT_LATE_S: Final = 0.005  # Between the last instruction of the client and the note of the caller.


@dataclass(slots=True)
class Promise:
    """One promise, how much was checked, and where it was broken."""

    name: str
    checked: int = 0
    broken: int = 0
    examples: list[str] = field(default_factory=list)

    def fail(self, example: str) -> None:
        """Count one break."""
        self.broken += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(example)

    def fail_all(self, examples: Iterable[str]) -> "Promise":
        """Count every one of `examples`."""
        for example in examples:
            self.fail(example)
        return self


def lost(journal: Journal, record: Record) -> Promise:
    """Whatever was acknowledged, or committed to the inbox, has been decided."""
    promise = Promise("lost")
    rejected = {one.message_id for one in record.rejections}
    rejected_keys = {one.key for one in record.rejections}
    for sent in journal.events.values():
        if sent.acknowledged is not None:
            promise.checked += 1
            if sent.key not in record.decisions and sent.key not in rejected_keys:
                promise.fail(
                    f"{sent.interface} {sent.key}: acknowledged, neither decided nor rejected"
                )
    for message in record.accepted.values():
        if message.key[0] == canaries.SOURCE:
            continue  # The engine takes it out of its queue and leaves nothing behind.
        promise.checked += 1
        keys = {message.key}
        if message.body.get("type") == TIMEOUT_REVERSAL:
            keys.add(key_of(message.body["authorization"]))  # Declined in its place.
        if not keys & record.decisions.keys() and message.id not in rejected:
            promise.fail(f"{message.key}: committed to the inbox, neither decided nor rejected")
    return promise


_APPLIED_TWICE: Final = """
    SELECT message_id, count(*) FROM (
        SELECT message_id FROM card_transaction_events
        WHERE kind IN ('AUTHORIZED', 'DECLINED', 'CLEARED', 'REFUNDED')
        UNION ALL SELECT message_id FROM deposits
    ) f GROUP BY message_id HAVING count(*) > 1
"""


_EFFECTS: Final = {
    "AUTHORIZATION": ("/simulate/authorization",),
    DEPOSIT: ("/fund",),
    TRANSFER: ("/transfer-out", "/transfer-in", "/quotes"),
}
"""What requests over HTTP, repeated with one `Idempotency-Key`, do once, by their paths."""


def applied_twice(system: System, journal: Journal, record: Record) -> Promise:
    """Nothing was applied twice: not by message, and not by request."""
    promise = Promise("applied twice", checked=len(record.decisions))
    with system.connect() as connection:
        for message_id, count in connection.execute(_APPLIED_TWICE.encode()):
            promise.fail(f"message {message_id}: {count} facts")
    effects = Counter(
        record.accepted[decision.message_id].body["type"]
        for key, decision in record.decisions.items()
        if key not in journal.events and decision.message_id in record.accepted
    )
    for kind, endings in _EFFECTS.items():
        called = [call for call in journal.calls if call.path.endswith(endings)]
        promise.checked += len(called)
        # What was refused had no effect, and must not make room for the second one of another.
        most = sum(_may_have_had_effect(call) for call in called)
        if effects[kind] > most:
            promise.fail(f"{effects[kind]} x {kind} of {most} requests over HTTP")
        promise.fail_all(
            f"{ending}: none of its requests succeeded, so that nothing was checked"
            for ending in endings
            if _never_succeeded([call for call in called if call.path.endswith(ending)])
        )
    return promise


def _may_have_had_effect(call: Called) -> bool:
    """Return whether a request may have had its effect: one, never two.

    One that was refused may have had it at an earlier attempt that failed or was not answered.
    """
    is_uncertain = any(status == 0 or status >= _SERVER_ERROR for status in call.statuses)
    return call.refusal is None or is_uncertain


def _never_succeeded(called: Sequence[Called]) -> bool:
    return bool(called) and all(call.answer is None for call in called)


def approval_reported_late(journal: Journal) -> Promise:
    """No caller received an approval after its `decideBy`.

    Time in which the caller itself stood still, because the machine ran something else, does not
    count: it could not have received an answer.
    """
    promise = Promise("approval reported late")
    for sent in journal.events.values():
        for answer in sent.answers:
            if answer.decide_by is None:
                continue
            promise.checked += 1
            is_approval = "APPLIED" in {answer.outcome, answer.first_outcome}
            late_s = answer.at - answer.decide_by - journal.stalled_s(answer.decide_by, answer.at)
            if is_approval and late_s > _NOT_LATE_S:
                promise.fail(
                    f"{sent.key}: {answer.outcome} reported {late_s * 1000:.0f} ms after decideBy,"
                    f" attempt {sent.attempts}"
                )
    return promise


def wrongly_rejected(journal: Journal, record: Record) -> Promise:
    """Every valid event was decided, and every answer is what the record says."""
    promise = Promise("wrongly rejected")
    reused = {sent.key for sent in journal.reuses}
    for rejection in record.rejections:
        is_expected = rejection.reason in _EXPECTED_REJECTIONS
        if rejection.reason == "KEY_REUSED":
            is_expected = rejection.key in reused
        if not is_expected:
            promise.fail(f"{rejection.key}: REJECTED {rejection.reason}: {rejection.detail}")
    reversals = record.timeout_reversals()
    for sent in (*journal.events.values(), *journal.reuses):
        for answer in sent.answers:
            promise.checked += 1
            reversal = reversals.get(sent.key)
            problem = _contradiction(sent, answer, record, reversal)
            if problem is not None:
                promise.fail(f"{sent.interface} {sent.key}: {problem}; {_described(reversal)}")
    for call in journal.calls:
        promise.checked += 1
        problem = _unexpected_status(call)
        if problem is not None:
            promise.fail(f"{call.method} {call.path}: {problem}")
    return promise


def _described(reversal: Decision | None) -> str:
    if reversal is None:
        return "no timeout reversal"
    return f"timeout reversal {reversal.outcome} {reversal.reason or ''}".strip()


def _contradiction(
    sent: Sent, answer: Answer, record: Record, reversal: Decision | None
) -> str | None:
    reported = f"reported {answer.outcome} {answer.reason or ''}".strip()
    if sent.is_reuse:
        is_refused = answer.outcome == "REJECTED" and answer.reason == "KEY_REUSED"
        return None if is_refused else f"a reused key with another body, {reported}"
    decision = record.decisions.get(sent.key)
    if answer.outcome == "REJECTED":
        return f"a valid event, {reported}"
    if decision is None:
        return f"{reported}, the record has no outcome"
    if reversal is not None and reversal.outcome == "APPLIED":
        # The last answer counts: the approval was not reported in time, and was reversed.
        is_approval = "APPLIED" in {answer.outcome, answer.first_outcome}
        is_last = answer is sent.answers[-1]
        is_wrong = is_approval and is_last
        return f"{reported}, the record says that it was reversed" if is_wrong else None
    if answer.outcome == "DUPLICATE":
        if answer.first_outcome != decision.outcome:
            return f"{reported} of {answer.first_outcome}, the record says {decision.outcome}"
        return None
    if answer.outcome in _MONEY and answer.outcome != decision.outcome:
        return f"{reported}, the record says {decision.outcome}"
    return None


def _unexpected_status(call: Called) -> str | None:
    if 500 in call.statuses:
        return f"500 among {call.statuses}"
    if call.refusal is None:
        return None
    # What is refused for a reason of this load: a purchase that has changed in between, no money.
    status = call.statuses[-1]
    is_ours = status in {400, 404, 409} and '"INTERNAL' not in call.refusal
    return None if is_ours else f"{status}: {call.refusal[:160]}"


_STUCK: Final = {
    "inbox": "SELECT count(*) FROM inbox",
    "enqueued events": "SELECT count(*) FROM enqueued_events",
    "stalled queues": "SELECT count(*) FROM stalled_queues",
    "outbox": "SELECT count(*) FROM outbox",
    "transfers": "SELECT count(*) FROM transfers"
    " WHERE status IN ('PENDING', 'PROCESSING') OR due_at IS NOT NULL",
    "webhooks": "SELECT count(*) FROM webhook_deliveries WHERE state = 'PENDING'",
}


def waiting(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Return how much of each kind still waits."""
    counts = {}
    for name, query in _STUCK.items():
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        counts[name] = int(row[0])
    return counts


def stuck(left: dict[str, int], journal: Journal) -> Promise:
    """Once all is quiet nothing waits any more, and no caller does."""
    callers = len(journal.events) + len(journal.reuses) + len(journal.calls)
    promise = Promise("stuck", checked=len(left) + callers)
    for name, count in left.items():
        promise.broken += count
        if count:
            promise.examples.append(f"{name}: {count} waiting")
    return promise.fail_all(journal.unanswered())


def conserved(snapshots: int, violations: Sequence[str]) -> Promise:
    """Money was conserved in every snapshot that was read, and one was read at least."""
    promise = Promise("conservation", checked=snapshots).fail_all(violations)
    if not snapshots:
        promise.fail("no snapshot of the books was read")
    return promise


def replayed(system: System, record: Record) -> Promise:
    """A second model arrives at the same outcomes, roll-ups and balances."""
    promise = Promise("replay")
    replay = Replay(system, record)
    promise.fail_all(replay.differences())
    promise.checked = replay.messages
    return promise


_PAYMENTS: Final = "SELECT count(*) FROM transfers WHERE kind <> 'INTERNAL'"


def paid(system: System) -> Promise:
    """Every payment stands where its events put it, and has the entries that they give."""
    promise = Promise("payments")
    with system.connect() as connection, connection.transaction():
        promise.fail_all(payments.differences(connection))
        [(promise.checked,)] = connection.execute(_PAYMENTS.encode()).fetchall()
    return promise


def verified(system: System) -> Promise:
    """The audit of the ledger finds no difference."""
    with system.connect() as connection, connection.transaction():
        report = verification.verify_in_transaction(connection, lambda _done, _total: None)
    rows = report.events + report.entries + report.transfers + report.accounts
    promise = Promise("audit", checked=rows).fail_all(report.differences)
    promise.broken = report.difference_count  # Of which it describes the first ones.
    return promise


def ordered(journal: Journal, record: Record) -> Promise:
    """Of one cardholder and lane, what was acknowledged before another began was decided before.

    An event counts from its first attempt to its first acknowledgement. What was enqueued waits for
    its way to the inbox, so it is compared with other enqueued events.
    """
    promise = Promise("real-time order")
    queues: dict[tuple[Id, int, str], list[tuple[tuple[float, bytes], Sent]]] = defaultdict(list)
    for sent in journal.events.values():
        decision = record.decisions.get(sent.key)
        if decision is not None and sent.acknowledged is not None:
            queues[sent.customer_id, int(sent.lane), sent.queue].append((decision.order, sent))
    for queue in queues.values():
        promise.checked += len(queue)
        promise.fail_all(_overtaken(queue))
    return promise


def _overtaken(queue: list[tuple[tuple[float, bytes], Sent]]) -> Iterator[str]:
    """Yield each event that was decided before one that had been acknowledged before it began."""
    earliest: tuple[float, Key] | None = None  # Acknowledged first, of those decided later.
    for _, sent in sorted(queue, key=lambda one: one[0], reverse=True):
        assert sent.acknowledged is not None
        if earliest is not None and earliest[0] < sent.began:
            yield f"{sent.key} was decided before {earliest[1]}, acknowledged before it began"
        if earliest is None or sent.acknowledged < earliest[0]:
            earliest = sent.acknowledged, sent.key


def delivered(system: System, receiver: FlakyReceiver) -> Promise:
    """Every webhook arrived, verified, and of each card transaction in order."""
    promise = Promise("webhooks")
    with system.connect() as connection:
        rows = connection.execute(
            "SELECT 'Webhook:' || webhook_id::text, state FROM webhook_deliveries"
            " WHERE type LIKE 'CARD!_TRANSACTION.%' ESCAPE '!'"
        ).fetchall()
    promise.checked = len(rows)
    taken: set[str] = set()
    last: dict[str, int] = defaultdict(int)
    for hit in receiver.hits:
        if hit.webhook_id in taken:
            continue  # The sender was struck between the answer and its record.
        if hit.sequence <= last[hit.subject]:
            promise.fail(f"{hit.webhook_id}: sequence {hit.sequence} of {hit.subject} too late")
        if hit.taken:
            taken.add(hit.webhook_id)
            last[hit.subject] = hit.sequence
    sent = {str(key) for key, _ in rows}
    promise.fail_all(f"{key}: not received" for key in sent - taken)
    promise.fail_all(f"{key}: received, not in the record" for key in taken - sent)
    return promise.fail_all(f"{key}: {state}" for key, state in rows if state != "DELIVERED")

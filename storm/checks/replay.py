"""Replay the whole history through a second implementation of the money rule.

The model (`cardledger.ledger.testing.model`) is slow, simple and written from the specification. It
gets every message that was decided, in the order of the commits, and has to arrive at the outcomes,
roll-ups and balances of the record.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from typing_extensions import override

from cardledger.ledger.messaging.inbox import (
    CARD_CLOSED,
    DEPOSIT,
    RAIL_ANSWER,
    RECOVERY,
    SUSPENSE,
    TRANSFER,
)
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.testing import late, purchases
from cardledger.ledger.testing.account import Event
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.purchases import Purchase
from cardledger.schema.ids import Id
from storm.checks.record import Decision, Record, key_of
from storm.system import System

TIMED_OUT: Final = "DECISION_TIMEOUT"
NOT_ACTIVE: Final = "CARD_NOT_ACTIVE"

_ROLL_UPS: Final = """
    SELECT account_id, card_id, issuer_transaction_token, status,
        coalesce(nullif(authorized, 0), nullif(declined, 0),
            CASE WHEN is_credit THEN coalesce(credit_authorized, refunded) END, 0),
        pull_count, pulled, released,
        CASE WHEN is_credit THEN refunded ELSE settled END,
        CASE WHEN is_credit THEN 0 ELSE refunded END
    FROM card_transactions CROSS JOIN LATERAL (
        SELECT coalesce(closed_by = 'CREDITED', false) OR (credit_authorized IS NOT NULL
            AND authorizations = 0 AND settlement_count = 0) AS is_credit
    ) k
"""
# Owners without a card have payments, which are checked by another promise.
_ACCOUNTS: Final = """
    SELECT id, balance, held, owed FROM internal_accounts
    WHERE customer_id IN (SELECT customer_id FROM cards)
"""
_TRANSFERS: Final = """
    SELECT id::text, source_account_id, destination_account_id, amount FROM transfers
    WHERE kind = 'INTERNAL'
"""
# What was rejected stands there only under a used key, which the model does not see: the others are
# events of simulators, which have moved nothing.
_SUSPENDED: Final = """
    SELECT coalesce(sum(CASE WHEN type IN ('CLEARING', 'RETURN_REVERSAL') THEN amount
        ELSE -amount END), 0)
    FROM suspense_items
    WHERE cause <> 'CLOSED' AND reason IS DISTINCT FROM 'KEY_REUSED' AND resolved_at IS NULL
"""
_FIRST_SOURCES: Final = "SELECT id, funding_sources[1] FROM cards"

_Transfer = tuple[Id, Id, int]


class _Account(Model):
    """A funding account of any number of cards."""

    def __init__(self) -> None:
        super().__init__()
        self.forced_reason: str | None = None  # What only the clock, or the card, knows.
        self.cards: Final[dict[str, str]] = {}

    @override
    def _decline_reason(self, purchase: Purchase, amount: int, asked: int) -> str | None:
        found = super()._decline_reason(purchase, amount, asked)
        return found or self.forced_reason

    @override
    def _credit_decline_reason(self, purchase: Purchase) -> str | None:
        return super()._credit_decline_reason(purchase) or self.forced_reason

    def close_card(self, card: str) -> None:
        """Release what is held for the purchases of one card."""
        self.arrivals += 1
        for name, purchase in list(self.purchases.items()):
            stands = purchases.expects_more(purchase) and not purchase["closed"]
            if self.cards[name] == card and stands:
                if purchases.is_credit(purchase):
                    purchase["credit"] = min(purchase["credit"], purchase["refunded"])
                purchase["authorized"] = min(purchase["authorized"], purchase["settled"])
                purchase["closed"] = "CARD_CLOSED"
                purchase["applied"].append(late.CLOSED_CARD)
                self._settle_up(purchase, self.arrivals)

    def debit(self, amount: int) -> bool:
        """Take `amount` for a transfer, unless the account has less to spend."""
        if amount > max(self.money - self.owed(), 0):
            return False
        self.money -= amount
        return True

    def credit(self, amount: int) -> None:
        """Receive a transfer."""
        self.money += amount
        self._pay_debts()


class Replay:
    """The books of every cardholder, by the model."""

    def __init__(self, system: System, record: Record) -> None:
        """Read what tells which account a message concerns."""
        self._record: Final = record
        with system.connect() as connection:
            self._roll_ups: Final = connection.execute(_ROLL_UPS.encode()).fetchall()
            self._balances: Final = connection.execute(_ACCOUNTS.encode()).fetchall()
            transfers = connection.execute(_TRANSFERS.encode()).fetchall()
            sources = connection.execute(_FIRST_SOURCES.encode()).fetchall()
            [(self._suspended,)] = connection.execute(_SUSPENDED.encode()).fetchall()
        self._transfers: Final[dict[Any, _Transfer]] = {
            row[0]: (row[1], row[2], row[3]) for row in transfers
        }
        self._account_of: Final[dict[tuple[str, str], Id]] = {
            (f"Card:{row[1]}", str(row[2])): row[0] for row in self._roll_ups
        }
        self._source_of: Final = {f"Card:{row[0]}": row[1] for row in sources}
        self._accounts: Final[defaultdict[Any, _Account]] = defaultdict(_Account)
        self.messages = 0

    def differences(self) -> Iterator[str]:
        """Replay everything; yield where the model and the record differ."""
        for decision in sorted(self._record.decisions.values(), key=lambda one: one.order):
            accepted = self._record.accepted.get(decision.message_id)
            if accepted is None:
                yield f"{decision.key}: decided, but never accepted"
                continue
            self.messages += 1
            expected = self._apply(accepted.body, decision)
            if expected != decision.outcome:
                yield (
                    f"{decision.key} {accepted.body['type']}: the record says {decision.outcome}"
                    f" ({decision.reason}), the model {expected}"
                )
        yield from self._differing_accounts()
        yield from self._differing_roll_ups()
        suspended = sum(account.suspended() for account in self._accounts.values())
        if suspended != self._suspended:
            yield f"money in SUSPENSE is {self._suspended}; the model has {suspended}"

    def _apply(self, body: Mapping[str, Any], decision: Decision) -> str:
        match body["type"]:
            case kind if kind == TIMEOUT_REVERSAL:
                return self._timeout_reversal(body, decision)
            case kind if kind in {RECOVERY, SUSPENSE}:
                return decision.outcome  # The model pays all debts at once, and sees no rejection.
            case kind if kind == TRANSFER and body["transferId"] in self._transfers:
                return self._transfer(self._transfers[body["transferId"]])
            case kind if kind.startswith(TRANSFER) or kind == RAIL_ANSWER:
                return decision.outcome  # Of a payment.
            case kind if kind == CARD_CLOSED:
                return self._close_card(body)
            case kind if kind == DEPOSIT:
                return self._accounts[Id.parse(body["accountId"])].submit(body)
        return self._network_event(body, decision)

    def _timeout_reversal(self, body: Mapping[str, Any], decision: Decision) -> str:
        """Decline the authorization in the place of its own message, or take its approval back."""
        authorization = body["authorization"]
        if decision.key == key_of(authorization):
            return self._network_event(authorization, decision)
        if self._record.decisions[key_of(authorization)].outcome != "APPLIED":
            return "IGNORED"
        return self._network_event(body, decision)

    def _transfer(self, transfer: _Transfer) -> str:
        source, destination, amount = transfer
        if not self._accounts[source].debit(amount):
            return "DECLINED"
        self._accounts[destination].credit(amount)
        return "APPLIED"

    def _close_card(self, body: Mapping[str, Any]) -> str:
        for account in list(self._accounts.values()):
            account.close_card(body["cardId"])
        return "APPLIED"

    def _network_event(self, body: Event, decision: Decision) -> str:
        card, token = body["cardId"], body["issuerTransactionToken"]
        account_id = self._account_of.get((card, token), self._source_of.get(card))
        account = self._accounts[account_id]
        name = f"{card}/{token}"
        account.cards[name] = card
        # A deadline passes by the clock, and a card is closed beside the queue: neither is money.
        # Whether it was so is checked by `storm.checks.clocks`.
        is_known = decision.reason in {TIMED_OUT, NOT_ACTIVE}
        account.forced_reason = decision.reason if is_known else None
        outcome = account.submit({**body, "issuerTransactionToken": name})
        account.forced_reason = None
        return outcome

    def _differing_accounts(self) -> Iterator[str]:
        for key, *stored in self._balances:
            account = self._accounts[key]
            expected = [account.balance(), account.held(), account.owed()]
            if stored != expected:
                yield (
                    f"InternalAccount:{key}: balance, held, owed are {stored}; the model has"
                    f" {expected}"
                )

    def _differing_roll_ups(self) -> Iterator[str]:
        for account_id, card, token, status, authorized, *totals in self._roll_ups:
            account = self._accounts[account_id]
            name = f"Card:{card}/{token}"
            if name not in account.purchases:
                yield f"{name}: the model does not have it"
                continue
            names = ("pullCount", "pulled", "released", "settled", "refunded")
            stored = {"status": status, "authorized": authorized}
            stored |= dict(zip(names, totals, strict=True))
            if stored != account.figures(name):
                yield f"{name}: stored {stored}; the model has {account.figures(name)}"

"""Days of a network for tests: events that are sent, the lines of its file, and what must differ.

It shares nothing with the matching: what the file and the ledger have is added up here again.
"""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from typing import Any, Final

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import acting, settlement_files
from cardledger.install.settlement_files import Break, Result
from cardledger.ledger.network_files import reader
from tests.settlement_files import Row, file_of
from tests.world import Cardholder, World

TYPES: Final = {
    "CLEARING": "PRESENTMENT",
    "CLEARING_REVERSAL": "PRESENTMENT_REVERSAL",
    "RETURN": "CREDIT",
    "RETURN_REVERSAL": "CREDIT_REVERSAL",
    "FINANCIAL_AUTHORIZATION": "PRESENTMENT",
    "FINANCIAL_CREDIT_AUTHORIZATION": "CREDIT",
}
"""The type of the line of each event."""

DUE: Final = {"PRESENTMENT": 1, "CREDIT_REVERSAL": 1, "FEE": 1}
"""Types that are due to the network; all others are due from it."""

_networks = count(1)
_files = count(1)


@dataclass(slots=True)
class Network:
    """A network of its own, so that tests share a database."""

    world: World
    cardholder: Cardholder
    login: DatabaseUrl
    name: str = field(default_factory=lambda: f"NET-{next(_networks)}")

    def event(  # noqa: PLR0913 - an event
        self,
        kind: str,
        token: str,
        amount: int,
        day: date,
        *,
        cardholder: Cardholder | None = None,
        cycle: str | None = None,
        acquirer_reference: str | None = None,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        """Return an event that the network settles on `day`."""
        settlement = {"network": self.name, "settlementDate": str(day)}
        if cycle is not None:
            settlement["cycle"] = cycle
        if acquirer_reference is not None:
            settlement["acquirerReference"] = acquirer_reference
        found = self.world.event(
            kind, cardholder or self.cardholder, f"{self.name}-{token}", amount, **fields
        )
        return {"settlement": settlement, **found, "reference": f"{self.name}-{found['reference']}"}

    def send(self, *events: dict[str, Any]) -> list[str]:
        """Let the engine decide `events`; return their outcomes."""
        by_card = {f"Card:{self.cardholder.card_id}": self.cardholder}
        sent = [(by_card.get(event["cardId"], self.cardholder), event) for event in events]
        decided = self.world.process(self.world.engine(), sent)
        return [str(each.outcome.value) for each in decided]

    def line(self, event: dict[str, Any], **changes: str) -> Row:
        """Return the line of the file that is about `event`."""
        found = {
            "record": "D",
            "type": TYPES[event["type"]],
            "reference": event["reference"],
            "token": event["issuerTransactionToken"],
            "card_id": event["cardId"],
            "amount": str(event["amount"]),
            "currency": event["currency"],
            "merchant": event.get("merchant", {}).get("descriptor", ""),
        }
        return found | changes

    def file(self, day: date, lines: Sequence[Row], **header: str) -> bytes:
        """Return the file of `day` with `lines`; at least one, because totals need a currency."""
        changes = {"file_id": f"F-{next(_files)}", "network": self.name, "cycle": ""}
        return file_of(*lines, **(changes | {"settlement_date": str(day)} | header))

    def take(self, data: bytes, *, keep: bool = True) -> Result:
        """Import a file as the person who may prepare."""
        platform = self.cardholder.owner.platform_id
        with acting.as_person(self.login, may="prepare", reply_limit_s=None) as session:
            return settlement_files.import_file(
                session, platform, reader.read(io.BytesIO(data)), keep=keep
            )

    def imported(self, day: date, lines: Sequence[Row], **header: str) -> Result:
        """Import the file of `day`, and check its proof."""
        result = self.take(self.file(day, lines, **header))
        self.check_proof(result, lines)
        return result

    def rematch(self) -> None:
        """Match open breaks with what came later."""
        with acting.as_person(self.login, may="prepare", reply_limit_s=None) as session:
            settlement_files.rematch(session)

    def breaks(self) -> list[Break]:
        """Return the breaks of the network."""
        with acting.as_person(self.login, may="prepare") as session:
            return settlement_files.breaks(
                session, states=None, network=self.name, day=None, kind=None, limit=1000
            )

    def kinds(self) -> Counter[tuple[str, str | None, str, int]]:
        """Return kind, cause, state and difference of each break."""
        return Counter(
            (each.kind, each.cause, each.state, each.difference) for each in self.breaks()
        )

    def check_proof(self, result: Result, lines: Sequence[Row]) -> None:
        """Check that ledger and differences add up to what the lines add up to."""
        for proof in result.proof:
            total = sum(
                int(each["amount"]) * DUE.get(each["type"], -1)
                for each in lines
                if each["currency"] == proof.currency
            )
            assert proof.file == total
            assert proof.ledger + proof.difference == proof.file
            found = sum(
                each.difference for each in result.breaks if each.currency == proof.currency
            )
            assert found == proof.difference


def due(event: dict[str, Any]) -> int:
    """Return what `event` adds to what is due to the network."""
    amount: int = event["amount"]
    return amount * DUE.get(TYPES[event["type"]], -1)

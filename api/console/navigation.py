"""The parts of the console, in the order of the navigation."""

from dataclasses import dataclass
from typing import Final

from cardledger.api.console import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the console: its title, and the path of its first page."""

    title: str
    path: str
    in_sandbox_only: bool = False


OVERVIEW: Final = Part(title="Overview", path=ROOT)
CARD_TRANSACTIONS: Final = Part(title="Card transactions", path=f"{ROOT}/card-transactions")
EXCEPTIONS: Final = Part(title="Exceptions", path=f"{ROOT}/exceptions")
ACCOUNTS: Final = Part(title="Accounts", path=f"{ROOT}/accounts")
CUSTOMERS: Final = Part(title="Customers", path=f"{ROOT}/customers")
CARDS: Final = Part(title="Cards", path=f"{ROOT}/cards")
JOURNAL: Final = Part(title="Journal", path=f"{ROOT}/journal")
TRIAL_BALANCE: Final = Part(title="Trial balance", path=f"{ROOT}/trial-balance")
WEBHOOKS: Final = Part(title="Webhooks", path=f"{ROOT}/webhooks")
SIMULATOR: Final = Part(title="Simulator", path=f"{ROOT}/simulator", in_sandbox_only=True)
SYSTEM: Final = Part(title="System", path=f"{ROOT}/system")

DELIVERIES: Final = f"{WEBHOOKS.path}/deliveries"
"""The path of the list of deliveries."""

PAYMENTS: Final = f"{SIMULATOR.path}/payments"
"""The path of the simulator's payments from outside."""

PARTS: Final = (
    OVERVIEW,
    CARD_TRANSACTIONS,
    EXCEPTIONS,
    ACCOUNTS,
    JOURNAL,
    WEBHOOKS,
    SIMULATOR,
    SYSTEM,
)

HOLDERS: Final = (CUSTOMERS, ACCOUNTS, CARDS)
"""The lists of the part Accounts."""

BOOKS: Final = (JOURNAL, TRIAL_BALANCE)
"""The pages of the part Journal."""


def parts(*, is_sandbox: bool) -> list[Part]:
    """Return the parts of an installation."""
    return [part for part in PARTS if is_sandbox or not part.in_sandbox_only]

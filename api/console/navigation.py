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
JOURNAL: Final = Part(title="Journal", path=f"{ROOT}/journal")
WEBHOOKS: Final = Part(title="Webhooks", path=f"{ROOT}/webhooks")
SIMULATOR: Final = Part(title="Simulator", path=f"{ROOT}/simulator", in_sandbox_only=True)
SYSTEM: Final = Part(title="System", path=f"{ROOT}/system")

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


def parts(*, is_sandbox: bool) -> list[Part]:
    """Return the parts of an installation."""
    return [part for part in PARTS if is_sandbox or not part.in_sandbox_only]

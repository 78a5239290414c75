"""Options that several commands have, and the values of some."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Data directory of the running system (default: .cardledger).",
        show_default=False,
    ),
]
InstallationDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Directory for the data of embedded servers and the secrets of this installation"
        " (default: .cardledger).",
        show_default=False,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Address to listen on (default: 127.0.0.1).",
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        help="Port to listen on; 0 chooses a free port (default: 8000).",
        min=0,
        max=65535,
        show_default=False,
    ),
]
Prod = Annotated[bool, typer.Option("--production", help="Also check safety on a network.")]


class LaneName(StrEnum):
    """The lanes of events, as `relay --lane` names them."""

    LIVE = "LIVE"
    BULK = "BULK"


class ReportFormat(StrEnum):
    """How `report --format` writes a report."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    XLSX = "xlsx"
    PARQUET = "parquet"


class FailOn(StrEnum):
    """What `submit --fail-on` takes: outcomes that fail it with rejections, or that none does."""

    REJECTED = "rejected"
    DECLINED = "declined"
    PARKED = "parked"
    NONE = "none"


FailOnOutcomes = Annotated[
    list[FailOn] | None,
    typer.Option(
        "--fail-on",
        metavar="OUTCOME",
        help="Exit with 1 also if an event is declined or parked; with none, not even if one is"
        " rejected. May be repeated.",
        show_default=False,
    ),
]


class RightName(StrEnum):
    """What a person may do, as `person add --may` names it."""

    PREPARE = "prepare"
    APPROVE = "approve"


class AdjustmentState(StrEnum):
    """The states of adjustments, as `adjust list --state` names them."""

    PREPARED = "PREPARED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    BOOKED = "BOOKED"
    REFUSED = "REFUSED"


class BreakState(StrEnum):
    """The states of a break, as `breaks list --state` names them."""

    OPEN = "open"
    INVESTIGATING = "investigating"
    RESOLVED = "resolved"
    WRITTEN_OFF = "written_off"
    EXPLAINED = "explained"


class ClosedAs(StrEnum):
    """What becomes of a break that a person closes."""

    RESOLVED = "resolved"
    WRITTEN_OFF = "written_off"


class BreakKind(StrEnum):
    """What a settlement file or a statement of the bank and the ledger differ by."""

    AMOUNT_DIFFERS = "AMOUNT_DIFFERS"
    CURRENCY_DIFFERS = "CURRENCY_DIFFERS"
    TYPE_DIFFERS = "TYPE_DIFFERS"
    DUPLICATE_LINE = "DUPLICATE_LINE"
    IN_FILE_ONLY = "IN_FILE_ONLY"
    IN_LEDGER_ONLY = "IN_LEDGER_ONLY"
    TIMING = "TIMING"
    AMBIGUOUS = "AMBIGUOUS"
    BANK_DIFFERS = "BANK_DIFFERS"
    BANK_ONLY = "BANK_ONLY"
    NOT_PAID = "NOT_PAID"

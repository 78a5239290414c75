"""Options that several groups of commands have."""

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

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

"""`cardledger rates`: the exchange rates of an installation.

What it needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardledger.commands.groups.database import quoted, run
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from cardledger.ledger.exchange.rate_file import RateFile

app = typer.Typer(
    name="rates",
    help="Load and list the exchange rates of conversions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("load")
def load(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="TOML with source, base, and [rates]: units of a currency for one of the base.",
            show_default=False,
        ),
    ],
    *,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Add rates for every platform; they apply from the next quote on.

    Rates that were loaded before stay in the record, and quotes keep the rate they have.
    """
    from cardledger.ledger.exchange import stored_rates

    rates = _parsed(file)
    _check_currencies(rates)

    async def insert(connection: "AsyncConnection[Any]") -> int:
        return await stored_rates.load(connection, rates)

    count = run(data_dir, insert)
    if as_json:
        print(json.dumps({"loaded": count, "base": rates.base, "source": rates.source}, indent=2))
    else:
        print(f"{count} rates for one {rates.base}, from {quoted(rates.source)}")


@app.command("list")
def list_rates(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """List the newest rate of each pair that was loaded, one a line."""
    from cardledger.ledger.exchange import stored_rates

    newest = run(data_dir, stored_rates.newest)
    if as_json:
        print(json.dumps([rate.as_dict() for rate in newest], indent=2))
        return
    for rate in newest:
        print(
            f"1 {rate.source_currency} = {rate.decimal()} {rate.destination_currency}"
            f"  since {rate.recorded_at:%Y-%m-%d %H:%M:%S}Z  by {quoted(rate.recorded_by)}"
            f"  {quoted(rate.source)}"
        )
    if not newest:
        print("none: a sandbox has rates of its own, other installations convert nothing")


def _parsed(file: Path) -> "RateFile":
    from cardledger.ledger.exchange import rate_file

    try:
        with file.open("rb") as opened:
            content = opened.read(rate_file.MAX_SIZE + 1)
        return rate_file.parse(content)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}", code=USAGE) from None
    except rate_file.RateFileError as error:
        raise CommandError(f"{file}: {error}", code=USAGE) from None


def _check_currencies(rates: "RateFile") -> None:
    from cardledger.schema.wire.common import CURRENCIES

    unknown = sorted({rates.base, *rates.rates} - CURRENCIES.keys())
    if unknown:
        raise CommandError(
            f"{', '.join(unknown[:5])}: not a currency of this installation; remove it", code=USAGE
        )

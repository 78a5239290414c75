"""`cardledger adjust`: corrections of the books, which two people make.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cardledger.config.options import AdjustmentState, DataDir, Json

if TYPE_CHECKING:
    from cardledger.install.acting import Session
    from cardledger.install.adjustments import Adjustment
    from cardledger.schema.ids import Id

app = typer.Typer(
    name="adjust",
    help="Correct the books: one person prepares, another approves.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LIMIT: Final = 10_000
_WAIT_S: Final = 10.0  # For a worker, which looks twice a second.

Key = Annotated[str, typer.Argument(metavar="ID", help="The adjustment.")]
Amount = Annotated[
    str,
    typer.Option("--amount", metavar="AMOUNT", help="In units of the currency, such as 12.34."),
]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Why, for those who approve and audit it.")
]


@app.command("write-off")
def write_off(
    card_transaction: Annotated[
        str, typer.Argument(metavar="ID", help="CardTransaction:<uuid>, or the UUID alone.")
    ],
    *,
    amount: Amount,
    reason: Reason,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Prepare to give up an amount that a card transaction owes.

    It is booked from RECEIVABLE to OPERATOR_LOSS, as an event of the card transaction.
    """
    from cardledger.commands.daily import arguments
    from cardledger.config.errors import CommandError
    from cardledger.install import adjustments

    key = arguments.key_of(card_transaction, "CardTransaction", "ID")
    with _session(data_dir, may="prepare") as session:
        debt = adjustments.debt_of(session, key)
        minor = arguments.amount_of(amount, debt.currency, debt.decimals, "--amount")
        if minor > debt.owed:
            owed = _major(debt.owed, debt.currency, debt.decimals)
            raise CommandError(
                f"CardTransaction:{key} owes {owed}: at most that can be written off"
            )
        prepared = adjustments.prepare_write_off(session, key, minor, reason)
    _show_state(prepared, "PREPARED", as_json=as_json)


@app.command()
def move(  # noqa: PLR0913 - what a move is
    *,
    from_account: Annotated[
        str, typer.Option("--from", metavar="ACCOUNT", help="Account of the chart to debit.")
    ],
    to_account: Annotated[
        str, typer.Option("--to", metavar="ACCOUNT", help="Account of the chart to credit.")
    ],
    amount: Amount,
    currency: Annotated[str, typer.Option(metavar="CODE", help="The currency, such as USD.")],
    reason: Reason,
    platform: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The platform, if there are several.", show_default=False),
    ] = None,
    break_id: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="ID",
            help="The break BANK_ONLY of the bank line that it books.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Prepare to debit one account of the chart and to credit another.

    Accounts: INTERCHANGE, NETWORK_FEES, NETWORK_SETTLEMENT, OPERATOR_LOSS, SETTLEMENT_BANK. All
    others are proved from card transactions, deposits, transfers and suspense items. From the first
    statement of the bank on, a move of SETTLEMENT_BANK needs --break: a line is booked once.
    """
    from cardledger.commands.daily import arguments
    from cardledger.commands.groups.database import identifier
    from cardledger.install import adjustments

    code, debit, credit = currency.upper(), from_account.upper(), to_account.upper()
    wanted = None if platform is None else arguments.key_of(platform, "Platform", "--platform")
    with _session(data_dir, may="prepare") as session:
        minor = arguments.amount_of(
            amount, code, adjustments.decimals_of(session, code), "--amount"
        )
        prepared = adjustments.prepare_move(
            session,
            wanted or adjustments.platform_with(session, debit, code),
            from_account=debit,
            to_account=credit,
            amount=minor,
            currency=code,
            reason=reason,
            break_id=None if break_id is None else identifier(break_id, "a break"),
        )
    _show_state(prepared, "PREPARED", as_json=as_json)


@app.command()
def reverse(key: Key, *, reason: Reason, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Prepare to take back a move of SETTLEMENT_BANK that was booked without --break.

    A statement that came later may say it as well: then its line is booked, and the move is not
    needed any more. A move is reversed as a whole and once.
    """
    from cardledger.commands.groups.database import identifier
    from cardledger.install import adjustments

    wanted = identifier(key, "an adjustment")
    with _session(data_dir, may="prepare") as session:
        prepared = adjustments.prepare_reversal(session, wanted, reason)
    _show_state(prepared, "PREPARED", as_json=as_json)


@app.command("resolve-suspense")
def resolve_suspense(
    item: Annotated[str, typer.Argument(metavar="ID", help="The item of the suspense account.")],
    *,
    reason: Reason,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Prepare to take an item of the suspense account back."""
    from cardledger.commands.groups.database import identifier
    from cardledger.install import adjustments

    key = identifier(item, "a suspense item")
    with _session(data_dir, may="prepare") as session:
        prepared = adjustments.prepare_suspense_resolution(session, key, reason)
    _show_state(prepared, "PREPARED", as_json=as_json)


@app.command()
def approve(
    key: Key,
    *,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until it is booked.")
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Approve an adjustment that another person has prepared, and wait until it is booked.

    Exit code 1: it was refused, or no worker has booked it within 10 seconds.
    """
    import time

    from cardledger.commands.groups.database import identifier
    from cardledger.config.errors import CommandError
    from cardledger.install import adjustments

    wanted = identifier(key, "an adjustment")
    with _session(data_dir, may="approve") as session:
        state = adjustments.approve(session, wanted)
        if no_wait:
            _show_state(wanted, state, as_json=as_json)
            return
        found = adjustments.wait_until_booked(session, wanted, limit_s=_WAIT_S, pause=time.sleep)
    _show_state(wanted, found.state, as_json=as_json)
    if found.state == adjustments.APPROVED:
        raise CommandError(
            f"adjustment {wanted} is approved, and not booked after {_WAIT_S:g} s: a worker books"
            f" it once one runs; `cardledger adjust show {wanted}` says when"
        )
    if found.state != adjustments.BOOKED:
        raise CommandError(f"adjustment {wanted} was refused: {found.refusal}")


@app.command()
def reject(key: Key, *, reason: Reason, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Reject an adjustment that another person has prepared; it is never booked."""
    from cardledger.commands.groups.database import identifier
    from cardledger.install import adjustments

    wanted = identifier(key, "an adjustment")
    with _session(data_dir, may="approve") as session:
        state = adjustments.reject(session, wanted, reason)
    _show_state(wanted, state, as_json=as_json)


@app.command("list")
def list_adjustments(
    *,
    state: Annotated[
        AdjustmentState | None,
        typer.Option(help="Only those in this state.", show_default=False),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of adjustments.", min=1, max=_LIMIT)
    ] = 50,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List adjustments, newest first, one a line."""
    from cardledger.commands.daily.arguments import printable
    from cardledger.install import adjustments

    with _session(data_dir, may="prepare") as session:
        found = adjustments.listed(session, state, limit)
    if as_json:
        print(json.dumps([_as_dict(adjustment) for adjustment in found], indent=2))
        return
    for each in found:
        print(
            f"{each.id}  {each.prepared_at:%Y-%m-%dT%H:%M:%SZ}  {each.state:<8}  {_about(each)}"
            f"  {printable(each.prepared_by)}"
        )
    if not found:
        print("none")


@app.command()
def show(key: Key, *, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Show an adjustment: what it is about, who prepared and decided, and what became of it."""
    from cardledger.commands.daily.arguments import printable
    from cardledger.commands.groups.database import identifier
    from cardledger.install import adjustments

    with _session(data_dir, may="prepare") as session:
        found = adjustments.find(session, identifier(key, "an adjustment"))
    if as_json:
        print(json.dumps(_as_dict(found), indent=2))
        return
    print(f"{found.id}  {found.state}  {_about(found)}  Platform:{found.platform_id}")
    if found.break_id is not None:
        print(f"break     {found.break_id}")
    if found.reverses_id is not None:
        print(f"reverses  {found.reverses_id}")
    print(f"reason    {printable(found.reason)}")
    print(f"prepared  {found.prepared_at:%Y-%m-%dT%H:%M:%SZ}  {printable(found.prepared_by)}")
    if found.decided_at is not None:
        word = "rejected" if found.state == "REJECTED" else "approved"
        print(f"{word}  {found.decided_at:%Y-%m-%dT%H:%M:%SZ}  {printable(found.decided_by)}")
    if found.booked_at is not None:
        print(f"booked    {found.booked_at:%Y-%m-%dT%H:%M:%SZ}")
    if found.refusal is not None:
        print(f"because   {printable(found.refusal)}")


def _show_state(key: "Id", state: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"id": str(key), "state": state}))
    else:
        print(f"adjustment {key} {state}")


def _about(adjustment: "Adjustment") -> str:
    amount = _major(adjustment.amount, adjustment.currency, adjustment.decimals)
    if adjustment.kind == "MOVE":
        return f"{amount}  MOVE {adjustment.from_kind} -> {adjustment.to_kind}"
    if adjustment.kind == "WRITE_OFF":
        return f"{amount}  WRITE_OFF CardTransaction:{adjustment.card_transaction_id}"
    return f"{amount}  {adjustment.kind} {adjustment.suspense_id}"


def _major(amount: int, currency: str, decimals: int) -> str:
    """Return `amount`, in minor units, as people read it: `1,234.50 USD`."""
    whole, part = divmod(amount, 10**decimals)
    return f"{whole:,}{f'.{part:0{decimals}}' if decimals else ''} {currency}"


def _as_dict(adjustment: "Adjustment") -> dict[str, Any]:
    def text(value: object) -> str | None:
        return None if value is None else str(value)

    times = {
        "preparedAt": adjustment.prepared_at,
        "decidedAt": adjustment.decided_at,
        "bookedAt": adjustment.booked_at,
    }
    fields = {
        "id": str(adjustment.id),
        "state": adjustment.state,
        "kind": adjustment.kind,
        "platformId": str(adjustment.platform_id),
        "amount": adjustment.amount,
        "currency": adjustment.currency,
        "from": adjustment.from_kind,
        "to": adjustment.to_kind,
        "cardTransactionId": text(adjustment.card_transaction_id),
        "suspenseId": text(adjustment.suspense_id),
        "breakId": text(adjustment.break_id),
        "reversesId": text(adjustment.reverses_id),
        "reason": adjustment.reason,
        "preparedBy": adjustment.prepared_by,
        "decidedBy": adjustment.decided_by,
        "refusal": adjustment.refusal,
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }
    return {name: value for name, value in fields.items() if value is not None}


@contextmanager
def _session(data_dir: Path | None, *, may: str) -> "Iterator[Session]":
    from cardledger.config import configuration
    from cardledger.install import acting, discovery

    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with discovery.database(settings) as url, acting.as_person(url, may=may) as session:
        yield session

"""What a report is about, from the options as they were written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Final

from cardledger.commands.daily import arguments
from cardledger.commands.daily.arguments import printable
from cardledger.commands.reports.document import Head
from cardledger.config.errors import USAGE, CommandError
from cardledger.ledger.queries.report_snapshot import Account, Scope, Snapshot
from cardledger.schema.finance import VERSION
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import rfc3339

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_KIND: Final = re.compile(r"[A-Z_]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of a report, as they were written; those that it does not have are None."""

    report: str
    on: str | None = None
    known: str | None = None
    first: str | None = None
    platform: str | None = None
    currency: str | None = None
    account: str | None = None
    on_option: str = "--on"
    output: Path | None = None
    data_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The values of `Wanted`, as far as they can be known without a database."""

    on: date | None
    known: datetime | None
    first: date | None
    platform: Id | None
    currency: str | None
    account: Id | str | None  # A key, or the kind of an account.


def parsed(wanted: Wanted) -> Parsed:
    """Return the values of the options.

    Raises: CommandError, a usage error.
    """
    on = None if wanted.on is None else day_of(wanted.on, wanted.on_option)
    first = None if wanted.first is None else day_of(wanted.first, "--from")
    if on is not None and first is not None and first > on:
        raise CommandError(
            f"--from {first} is after {wanted.on_option} {on}; write the earlier day first",
            code=USAGE,
        )
    return Parsed(
        on=on,
        known=None if wanted.known is None else arguments.time_of(wanted.known, "--known"),
        first=first,
        platform=None
        if wanted.platform is None
        else arguments.key_of(wanted.platform, "Platform", "--platform"),
        currency=None if wanted.currency is None else wanted.currency.upper(),
        account=None if wanted.account is None else _account_of(wanted.account),
    )


def day_of(text: str, option: str) -> date:
    """Return the day in `text`.

    Raises: CommandError, a usage error that names `option`.
    """
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise CommandError(
        f"{option} {printable(text)}: not a day; write it like 2026-10-31", code=USAGE
    )


def _account_of(text: str) -> Id | str:
    if _KIND.fullmatch(text):
        return text
    try:
        return Id.parse(text.removeprefix("InternalAccount:"))
    except ValueError:
        raise CommandError(
            f"--account {printable(text)}: not an account; write InternalAccount:<uuid>, the UUID"
            " alone, or the kind of a system account such as NETWORK_SETTLEMENT",
            code=USAGE,
        ) from None


def scope_of(values: Parsed, snapshot: Snapshot) -> Scope:
    """Return what the report is about in `snapshot`: by default today, as known now.

    Raises: CommandError when the books have no such currency, platform or account, or cannot know
    yet what will have been known.
    """
    if values.known is not None and values.known > snapshot.at:
        raise CommandError(
            f"--known {rfc3339(values.known)} is in the future: what is known then is not known"
            f" yet; PostgreSQL's clock says {rfc3339(snapshot.at)}",
            code=USAGE,
        )
    if values.currency is not None and values.currency not in snapshot.decimals:
        known = ", ".join(sorted(snapshot.decimals))
        raise CommandError(
            f"--currency {printable(values.currency)}: not a currency of the books; they are"
            f" {known}",
            code=USAGE,
        )
    if values.platform is not None and not snapshot.has_platform(values.platform):
        raise CommandError(f"there is no platform {values.platform} in the books")
    scope = Scope(
        on=values.on or snapshot.today,
        known=values.known or snapshot.at,
        first=values.first,
        platform=values.platform,
        currency=values.currency,
    )
    if values.account is None:
        return scope
    return replace(scope, account=_account(values.account, scope, snapshot).id)


def _account(wanted: Id | str, scope: Scope, snapshot: Snapshot) -> Account:
    """Return the one account that is `wanted` in `scope`."""
    if isinstance(wanted, Id):
        found = snapshot.account(wanted)
        if found is None:
            raise CommandError(f"there is no account {wanted} in the books")
        return found
    accounts = snapshot.accounts(wanted, scope)
    if not accounts:
        raise CommandError(f"there is no account {wanted}{_within(scope)} in the books")
    if len(accounts) > 1:
        some = "; ".join(
            f"{account.currency} of platform {account.platform_id}: {account.id}"
            for account in accounts[:3]
        )
        raise CommandError(
            f"--account {wanted}{_within(scope)} is more than one account; add --currency and"
            f" --platform, or write one of their ids ({some}, ...)",
            code=USAGE,
        )
    return accounts[0]


def _within(scope: Scope) -> str:
    parts = [f" in {scope.currency}"] if scope.currency else []
    return "".join([*parts, f" of platform {scope.platform}" if scope.platform else ""])


def head_of(report: str, scope: Scope, snapshot: Snapshot) -> Head:
    """Return the head of a report about `scope`."""
    return Head(
        report=report,
        version=VERSION,
        database=snapshot.database,
        time_zone=snapshot.time_zone,
        on=scope.on,
        known=scope.known,
        first=scope.first,
        filters=dict(_filters(scope)),
    )


def _filters(scope: Scope) -> Iterator[tuple[str, str]]:
    if scope.platform is not None:
        yield "platform", f"Platform:{scope.platform}"
    if scope.currency is not None:
        yield "currency", scope.currency
    if scope.account is not None:
        yield "account", str(scope.account)

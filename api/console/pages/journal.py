"""The journal by time, and the trial balance as it was last computed."""

from datetime import datetime, time, timedelta
from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Filters, LastMoment, Moment, Sent
from cardledger.api.console.lists.placed_listing import PlacedListing
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.http.errors import invalid
from cardledger.ledger.queries import trial_balance
from cardledger.ledger.queries.console import journal
from cardledger.ledger.queries.console.journal import Entry, JournalFilters, Kind, Page, Side
from cardledger.ledger.queries.trial_balance import TrialBalances
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Currency, InternalAccountId, amount, public_id, rfc3339
from cardledger.schema.wire.errors import FieldError

_PART: Final = navigation.JOURNAL
_LIST: Final = FilteredList(
    _PART.path,
    "journal.html",
    part=_PART,
    lists=navigation.BOOKS,
    kinds=[kind.value for kind in Kind],
)
_LISTING: Final = "console journal"
_IN_A_LINK: Final = "%Y-%m-%dT%H:%M:%S"
_BY_POSTING_DAY: Final = (
    "The command selects by posting day, whole days; this page by the time when an entry was"
    " recorded."
)
_ALL_KINDS: Final = "It has the entries of every account: it can select one, not all customers'."
_ONE_CURRENCY: Final = "Where the platform has several currencies, add --currency."
_COMPUTED: Final = (
    "The command computes it now; this page has what a worker computed at the time above."
)
_NOT_COMPUTED: Final = "The command computes it now; no worker has computed it for this page yet."
_NO_FILTER: Final = (
    "must be empty for one account: its statement, in its one currency, has no such filter"
)

router = console_router()


class JournalQuery(Filters):
    """The filters of the journal; all must match. Without a time it is that of today, in UTC."""

    since: Moment | None = None
    until: LastMoment | None = None
    kind: Kind | None = None
    currency: Currency | None = None
    account_id: InternalAccountId | None = None


@router.get(_LIST.path)
@_LIST.view
async def show_journal(
    request: Request, query: Annotated[JournalQuery, Query()], call: Viewer
) -> Response:
    """List entries, the newest first; those of one account are its statement."""
    if query.account_id is not None:
        return redirect(_statement_of(query.account_id, query))
    listing = PlacedListing(call, _LISTING, query, numbers=journal.PLACE_NUMBERS)
    until = query.until or call.now()
    since = query.since or _beginning_of_day(until)
    before = since - timedelta(microseconds=1)
    # Of the day that the first page has shown, also after midnight: the next pages name it.
    fixed = query.model_copy(update={"since": since, "until": until.replace(microsecond=999_999)})
    following = PlacedListing(call, _LISTING, fixed, numbers=journal.PLACE_NUMBERS)
    async with call.snapshot() as connection:
        page = await journal.page(
            connection,
            platform_id=call.platform_id,
            filters=JournalFilters(
                since=since, until=until, kind=query.kind, currency=query.currency
            ),
            after=listing.after(),
            limit=query.limit,
        )
    return await _LIST.page(
        request,
        call,
        following=Sent(
            Sent.of(request),
            since=f"{since:{_IN_A_LINK}}",
            until=f"{until:{_IN_A_LINK}}",
        ),
        since=since,
        until=until,
        before=before,
        day_before=_beginning_of_day(before),
        entries=page.entries,
        reached=page.reached,
        unread=page.unread,
        next_cursor=following.next_cursor(page.next_after),
        api=_command(call, query, since, until, page),
    )


def _statement_of(account_id: Id, query: JournalQuery) -> str:
    """Return the path of the statement of an account, of the same time.

    Raises: ApiError INVALID_INPUT for filters that a statement does not have.
    """
    filters = {"kind": query.kind, "currency": query.currency}
    others = [name for name, value in filters.items() if value is not None]
    if others:
        raise invalid([FieldError(field=name, message=_NO_FILTER) for name in others])
    moments = {"since": query.since, "until": query.until}
    times = [f"{name}={at:{_IN_A_LINK}}" for name, at in moments.items() if at is not None]
    path = f"{navigation.ACCOUNTS.path}/{public_id('InternalAccount', account_id)}"
    return f"{path}?{'&'.join(times)}" if times else path


def _command(
    call: ConsoleContext,
    query: JournalQuery,
    since: datetime,
    until: datetime,
    page: Page,
) -> rendering.Command:
    platform = public_id("PlatformConfig", call.platform_id).partition(":")[2]
    command = f"cardledger report journal --platform {platform}"
    command += f" --from {since:%Y-%m-%d} --to {until:%Y-%m-%d}"
    note = _BY_POSTING_DAY
    if query.currency is not None:
        command += f" --currency {query.currency}"
    if query.kind is Kind.CUSTOMER:
        note += f" {_ALL_KINDS}"
    elif query.kind is not None:
        command += f" --account {query.kind.value}"
        note += "" if query.currency else f" {_ONE_CURRENCY}"
    return rendering.Command(
        command=f"{command} --format json",
        document={
            "since": rfc3339(since),
            "until": rfc3339(until),
            "reachedAt": documents.moment(page.reached),
            "unread": page.unread,
            "entries": [_wire(entry) for entry in page.entries],
        },
        note=note,
    )


@router.get(navigation.TRIAL_BALANCE.path)
async def show_trial_balance(request: Request, call: Viewer) -> Response:
    """Show the trial balance of each currency, with its age."""
    async with call.snapshot() as connection:
        balances = await trial_balance.read(connection, platform_id=call.platform_id)
    platform = public_id("PlatformConfig", call.platform_id).partition(":")[2]
    return await rendering.page(
        request,
        "trial_balance.html",
        call=call,
        part=_PART,
        lists=navigation.BOOKS,
        balances=balances,
        api=rendering.Command(
            command=f"cardledger report trial-balance --platform {platform} --format json",
            document=_balances(balances),
            note=_NOT_COMPUTED if balances.as_of is None else _COMPUTED,
        ),
    )


def _beginning_of_day(at: datetime) -> datetime:
    return datetime.combine(at.date(), time(), at.tzinfo)


def _wire(entry: Entry) -> dict[str, object]:
    return {
        "recordedAt": rfc3339(entry.recorded_at),
        "postedOn": entry.posted_on,
        "event": entry.event,
        **documents.entry_subject(entry.subject),
        "debit": _account(entry.debit),
        "credit": _account(entry.credit),
        "amount": amount(entry.amount, entry.currency),
    }


def _account(side: Side) -> dict[str, object]:
    return {"kind": side.kind, "accountId": side.account}


def _balances(balances: TrialBalances) -> dict[str, object]:
    return {
        "asOf": None if balances.as_of is None else rfc3339(balances.as_of),
        "currencies": [
            {
                "currency": each.currency,
                "accounts": [
                    {"kind": one.kind, "debits": one.debits, "credits": one.credits}
                    for one in each.balances
                ],
            }
            for each in balances.currencies
        ],
    }

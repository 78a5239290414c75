"""`cardledger report explain`: a card transaction to the cent, in the sentences of the HTTP API."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from cardledger.commands.daily import arguments
from cardledger.commands.daily import explain as daily
from cardledger.commands.reports import output, scopes
from cardledger.commands.reports import run as reports
from cardledger.commands.reports.document import Document, Row
from cardledger.commands.reports.run import Target
from cardledger.commands.reports.scopes import Wanted
from cardledger.config import console as terminal
from cardledger.config.errors import CommandError
from cardledger.config.options import ReportFormat as Format
from cardledger.ledger.queries import explained_events
from cardledger.ledger.queries.report_definitions import EXPLAIN_COLUMNS
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import EventResource
from cardledger.schema.wire.common import public_id, rfc3339

NAME: Final = "explain"
_RESOURCE: Final = "CardTransaction"


def run(name: str, wanted: Wanted, target: Target) -> None:
    """Write the history of the card transaction `name`, a row for each entry.

    Raises: CommandError when there is none.
    """
    key = arguments.key_of(name, _RESOURCE, "ID")
    values = scopes.parsed(wanted)
    reports.check_packages(target.format)
    with reports.snapshot_of(wanted.data_dir) as snapshot:
        scope = scopes.scope_of(values, snapshot)
        found = snapshot.events(key)
        if found is None or scope.platform not in {None, found[1]}:
            of = "" if scope.platform is None else f" of platform {scope.platform}"
            raise CommandError(f"there is no card transaction {key}{of} in the books")
        currency, _, stored = found
        head = scopes.head_of(NAME, scope, snapshot)
        shown = {"cardTransaction": public_id(_RESOURCE, key)}
        events = explained_events.explained(stored, currency)
        document = Document(
            head=replace(head, filters={**head.filters, **shown}),
            columns=EXPLAIN_COLUMNS,
            batches=iter([list(rows_of(key, events, texts=target.format is not Format.PARQUET))]),
            decimals=snapshot.decimals,
        )
    if target.format is Format.TABLE and target.file is None:
        with output.opened(None):
            _show(document, events)
    else:
        reports.write(document, target)


def rows_of(key: Id, events: Sequence[EventResource], *, texts: bool) -> Iterator[Row]:
    """Yield a row for each entry of each event; one without entries for an event that has none."""

    def time(moment: datetime) -> Any:  # noqa: ANN401 - text, or the time itself
        return rfc3339(moment) if texts else moment

    for event in events:
        entries: list[tuple[Any, ...]] = [
            (line, entry.debit, entry.credit, entry.amount.amount)
            for line, entry in enumerate(event.entries)
        ]
        for entry in entries or [(None, None, None, None)]:
            yield (
                str(key),
                event.sequence,
                *entry,
                event.amount.currency.code,
                event.type,
                event.explanation,
                event.source,
                event.reference,
                time(event.occurred_at),
                time(event.recorded_at),
            )


def _show(document: Document, events: Sequence[EventResource]) -> None:
    out = terminal.console()
    out.print(Text(document.head.line(), style="dim"))
    for event in events:
        daily.show_event(out, event)

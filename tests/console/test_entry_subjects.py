"""What each entry of the journal belongs to, as the role of the API reads it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.ledger.queries.console import journal, search, statements
from cardledger.ledger.queries.console.journal import Entry, JournalFilters
from cardledger.ledger.queries.console.statements import Line
from cardledger.schema.ids import Id
from tests.bank_statements import line
from tests.console.snapshots import in_snapshot
from tests.databases import OwnRoles
from tests.integration.banks import DAY, Bank, after, book, book_moves, opened, proved
from tests.integration.test_adjustments import APPROVE, move
from tests.payments import DELAY, Desk
from tests.people_of_finance import call
from tests.world import Cardholder, World

FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)  # Before the clock of `Desk`.


@dataclass(frozen=True, slots=True)
class Played:
    """A platform on which every kind of entry was made, and its entries, the newest first."""

    world: World
    config: ApiConfig
    bank: Bank
    source: Cardholder
    adjustment: Id
    payout: Id
    entries: Sequence[Entry]

    @property
    def platform(self) -> Id:
        found: Id = self.bank.platform
        return found

    def key(self, query: str) -> str:
        """Return the one id that `query` selects of the platform."""
        [(key,)] = self.world.rows(query, self.platform)
        return str(key)

    def of(self, event: str) -> set[tuple[str, str]]:
        """Return what the entries of `event` belong to: its kind and its id."""
        return {
            (each.subject.kind, each.subject.id) for each in self.entries if each.event == event
        }


@pytest.fixture(scope="module")
def played(
    config: ApiConfig, own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    with proved(own_roles, tmp_path_factory.mktemp("subjects")) as office:
        world, bank = office.world, opened(office)
        source = bank.network.cardholder
        _of_cards(world, source)
        payout = _returned_payout(world, bank.platform)
        fee = {"record": "D", "type": "FEE", "amount": "70", "currency": "USD"}
        sold = fee | {"type": "PRESENTMENT", "amount": "1000", "interchange": "12"}
        bank.network.imported(DAY, [sold, fee])
        bank.owes(after(1), 500)
        bank.says(line(after(2), -500, "settlement"))
        book(world)
        moved = {"debit": "OPERATOR_LOSS", "credit": "INTERCHANGE"}
        adjustment = move(office.anna, bank.platform, 30, **moved)
        call(office.ben, APPROVE, adjustment)
        book_moves(world)
        own = replace(config, database_url=world.api_url)
        entries = in_snapshot(own, bank.platform, lambda connection: _journal(connection, bank))
        yield Played(world, own, bank, source, adjustment, payout, entries)


def _of_cards(world: World, holder: Cardholder) -> None:
    """Book a deposit, a transfer, a purchase, and what stands in suspense."""
    other, engine = world.another_account(holder), world.engine()
    sent = (
        world.deposit(holder, 100) | {"externalReference": "wire 7"},
        world.transfer(holder, other, 400),
        world.clearing(holder, "bought", 900),
        world.clearing(holder, "rejected", 700, currency="EUR", reference="of-rejected"),
        world.event("CLEARING_REVERSAL", holder, "waits", 300, reference="of-parked"),
        world.event("CLEARING_REVERSAL", holder, "freed", 250, reference="of-freed"),
        world.clearing(holder, "freed", 250),
    )
    for each in sent:
        world.process(engine, [(holder, each)])


def _returned_payout(world: World, platform: Id) -> Id:
    """Return a payout that a bank has returned to an account that is closed by then."""
    desk, payer = Desk(world), world.cardholder(platform, 1_000)
    payment = desk.out(payer, 1_000, "1234567005", quote_id=payer.card_id)
    desk.drain()
    world.connection.execute(
        "UPDATE internal_accounts SET status = 'CLOSED' WHERE id = %s", [payer.account_id]
    )
    desk.pass_time(DELAY)
    return payment


async def _journal(connection: AsyncConnection, bank: Bank) -> Sequence[Entry]:
    filters = JournalFilters(since=FIRST, until=datetime.now(UTC) + timedelta(days=1))
    page = await journal.page(connection, platform_id=bank.platform, filters=filters, limit=100)
    assert page.next_after is None
    return page.entries


def test_what_has_a_public_id_is_named_by_it(played: Played) -> None:
    purchases = "SELECT id FROM card_transactions WHERE platform_id = %s"
    bought = f"{purchases} AND issuer_transaction_token = 'bought'"
    transfer = "SELECT id FROM transfers WHERE platform_id = %s AND kind = 'INTERNAL'"
    parked = "SELECT id FROM parked WHERE platform_id = %s"
    rejected = "SELECT id FROM rejections WHERE platform_id = %s AND reference = 'of-rejected'"
    deposit = "SELECT id FROM deposits WHERE platform_id = %s AND external_reference = 'wire 7'"

    suspended = played.of("SUSPENDED")

    assert ("CARD_TRANSACTION", f"CardTransaction:{played.key(bought)}") in played.of("CLEARED")
    assert ("DEPOSIT", f"Transaction:{played.key(deposit)}") in played.of("DEPOSITED")
    assert played.of("TRANSFERRED") == {("TRANSFER", f"Transaction:{played.key(transfer)}")}
    assert played.of("PAYMENT_SENT") == {("PAYMENT", f"Transaction:{played.payout}")}
    assert ("REJECTION", f"Rejection:{played.key(rejected)}") in suspended
    assert ("PARKED_EVENT", f"ParkedEvent:{played.key(parked)}") in suspended


def test_what_has_none_is_named_in_words_with_its_id(played: Played) -> None:
    booking = "SELECT id FROM settlement_bookings WHERE platform_id = %s AND kind = '{}'"
    item = "SELECT id FROM suspense_items WHERE platform_id = %s AND {}"
    freed = ("SUSPENSE_ITEM", played.key(item.format("resolved_at IS NOT NULL")))
    returned = ("SUSPENSE_ITEM", played.key(item.format("type = 'PAYOUT_RETURN'")))

    assert played.of("ADJUSTED") == {("ADJUSTMENT", str(played.adjustment))}
    assert played.of("INTERCHANGE") == {
        ("SETTLEMENT_BOOKING", played.key(booking.format("INTERCHANGE")))
    }
    assert played.of("BANK_LINE") == {
        ("SETTLEMENT_BOOKING", played.key(booking.format("BANK_LINE")))
    }
    assert {kind for kind, _ in played.of("NETWORK_FEES")} == {"SETTLEMENT_BOOKING"}
    assert len(played.of("NETWORK_FEES")) == 2
    assert {freed, returned} < played.of("SUSPENDED")
    assert played.of("SUSPENSE_RESOLVED") == {freed}
    assert not played.of("BOOKED")


def test_messages_and_payments_have_their_references(played: Played) -> None:
    found = {(each.subject.source, each.subject.reference) for each in played.entries}

    messages = {("test", "of-rejected"), ("test", "of-parked"), ("test", "of-freed")}
    assert messages | {(None, "wire 7")} <= found
    assert [reference for _, reference in found if str(reference).startswith(f"{played.payout}/")]


def test_the_search_finds_what_is_said_to_be_found(played: Played) -> None:
    subjects = {each.subject.id: each.subject for each in played.entries}

    async def hits(connection: AsyncConnection) -> dict[str, list[str]]:
        return {
            name: [
                hit.name
                for hit in (
                    await search.find(connection, platform_id=played.platform, query=name)
                ).hits
            ]
            for name in subjects
        }

    found = in_snapshot(played.config, played.platform, hits)

    assert found == {
        name: [name] if subject.is_searched else [] for name, subject in subjects.items()
    }
    kinds = {subject.kind for subject in subjects.values() if subject.is_searched}
    assert kinds == {"CARD_TRANSACTION", "DEPOSIT", "TRANSFER", "PAYMENT", "REJECTION"}


def test_a_statement_names_the_same(played: Played) -> None:
    async def lines(connection: AsyncConnection) -> Sequence[Line]:
        page = await statements.page(connection, account_id=played.source.account_id, limit=100)
        return page.lines

    found = in_snapshot(played.config, played.platform, lines)

    subjects = {each.subject.id: each.subject for each in played.entries}
    assert {each.subject.kind for each in found} == {"CARD_TRANSACTION", "DEPOSIT", "TRANSFER"}
    assert all(each.subject == subjects[each.subject.id] for each in found)


def test_another_platform_has_none_of_it(played: Played) -> None:
    other = opened(played.bank.office)

    entries = in_snapshot(
        played.config, other.platform, lambda connection: _journal(connection, other)
    )

    assert [each.event for each in entries] == ["DEPOSITED"]
    assert not {each.subject.id for each in entries} & {each.subject.id for each in played.entries}

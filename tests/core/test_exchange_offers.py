"""Lists of exchange rates that are kept: what is found, and what is forgotten."""

from cardledger.api.exchange_offers import ExchangeOffers


def test_a_list_is_found_while_what_it_was_made_of_is_equal() -> None:
    offers = ExchangeOffers()
    offers.keep("A", ["EUR", 9], b"list")

    assert offers.find("A", ["EUR", 9]) == b"list"
    assert offers.find("A", ["EUR", 8]) is None
    assert offers.find("B", ["EUR", 9]) is None


def test_the_lists_that_were_used_last_are_kept_within_a_number_of_bytes() -> None:
    offers = ExchangeOffers(limit_bytes=10)
    for name in "AB":
        offers.keep(name, 1, bytes(5))
    offers.find("A", 1)
    offers.keep("C", 1, bytes(5))

    assert [name for name in "ABC" if offers.find(name, 1) is not None] == ["A", "C"]
    offers.keep("D", 1, bytes(11))
    assert offers.find("D", 1) is None, "larger than all may be"


def test_a_list_that_is_replaced_counts_once() -> None:
    offers = ExchangeOffers(limit_bytes=10)
    for revision in range(3):
        offers.keep("A", revision, bytes(5))
    offers.keep("B", 1, bytes(5))

    assert offers.find("A", 2) == bytes(5)


def test_empty_lists_are_bounded_by_their_number() -> None:
    offers = ExchangeOffers()
    for number in range(100):
        offers.keep(number, 1, b"")

    found = [number for number in range(100) if offers.find(number, 1) is not None]
    assert found == list(range(36, 100))

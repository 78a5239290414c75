"""One card transaction: figures, the picture, and what is said about it, as HTML."""

from tests.api.support import Api
from tests.console.person import Person, shown


def tip(api: Api) -> str:
    """Play a restaurant tip; return the id of the card transaction."""
    card = api.active_card()["id"]
    purchase: str = api.authorize(card, 1_250, descriptor="BISTRO")["id"]
    api.clear(card, purchase, 1_500)
    return purchase


def test_the_tip_ends_with_fifteen(person: Person, api: Api) -> None:
    page = shown(person.get(f"/card-transactions/{tip(api)}"))

    assert "BISTRO" in page
    assert "15.00" in page

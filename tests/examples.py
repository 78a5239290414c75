"""How many examples a property gets that is slow, because each one is played in a database."""

from hypothesis import settings


def examples(few: int) -> int:
    """Return `few`, and by night (`make properties`) as many as all properties get then."""
    by_night = settings.get_profile("nightly").max_examples
    return by_night if settings().max_examples >= by_night else few

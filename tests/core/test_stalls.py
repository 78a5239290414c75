"""Which failures stop a queue, and which only a cardholder."""

from cardledger.ledger.engine.stalls import FailedError, is_systemic


def failures(*errors: str) -> list[FailedError]:
    return [FailedError(None, error) for error in errors]


def test_one_error_of_postgresql_is_systemic_wherever_a_pipeline_raised_it() -> None:
    denied = "42501: permission denied for table outbox"

    assert is_systemic(failures(f"{denied} (writes.py:82)", f"{denied} (claims.py:206)"))


def test_different_errors_and_defects_at_different_places_are_not_systemic() -> None:
    assert not is_systemic(failures("42501: permission denied", "23502: a null value"))
    assert not is_systemic(failures("AssertionError: (a.py:1)", "AssertionError: (b.py:2)"))

"""The attacks themselves, in small: two that are cheap, against a real system."""

import sys
from typing import Final

import pytest
import typer

from attack import run
from attack.__main__ import main

CHEAP: Final = ("cross-site requests", "unknown fields", "guessed codes", "invalid files")
# A machine under the load of other tests delays others by itself.
NOT_JUDGED: Final = {
    "other platform's p99",
    "other platform's 5xx or unanswered",
    "health checks, p99",
}

MEASURED: Final = {"memory added", "processes that ended", "rows: tokens", "rows: all customers"}


def test_cheap_attacks_strike_and_are_withstood() -> None:
    options = run.Options(seconds=1, quiet_seconds=1, rate=10, names=CHEAP)

    report = run.run(options)

    assert [finding.name for finding in report.findings] == list(CHEAP)
    for finding in report.findings:
        assert finding.error is None, report.text()
        assert finding.struck > 0, report.text()
        broken = {measure.name for measure in finding.broken}
        assert not broken - NOT_JUDGED, report.text()
        measured = {measure.name for measure in finding.measures}
        assert measured > MEASURED


@pytest.mark.parametrize("arguments", [["--only", "unheard of"], ["--seconds", "0"], ["--wrong"]])
def test_an_unknown_attack_or_option_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attack", *arguments])

    with pytest.raises(SystemExit) as ended:
        typer.run(main)

    assert ended.value.code == 2


def test_every_attack_of_the_list_is_there_and_the_one_that_ends_the_system_is_last() -> None:
    items = {attack.item for attack in run.ATTACKS.values()}

    assert {f"A{number}" for number in range(1, 7)} <= items
    assert {f"B{number}" for number in range(7, 13)} <= items
    assert {f"C{number}" for number in range(13, 19)} <= items
    assert [attack.ends_system for attack in run.ATTACKS.values()].count(True) == 1
    assert list(run.ATTACKS.values())[-1].ends_system
    assert run.ATTACKS["invalid files"].item == "A6"
    assert len({attack.name for attack in run.ATTACKS.values()}) == len(run.ATTACKS)

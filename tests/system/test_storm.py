"""The storm itself, in small: a few kinds of faults, a fixed seed."""

from typing import Final

from storm import run

KINDS: Final = (
    "worker killed",
    "Redis emptied",
    "cut after COMMIT",
    "cut before the end of COPY",
    "accounts locked by an outsider",
)
# A machine under the load of other tests can stop the caller itself past its deadline.
NOT_JUDGED: Final = {"told late"}


def test_a_small_storm_strikes_with_every_kind_and_breaks_no_promise() -> None:
    options = run.Options(seed=7, seconds=12, rate=25, cardholders=16, kinds=KINDS)

    report = run.run(options)

    assert not report.not_struck, report.text()
    assert {strike.kind for strike in report.strikes} <= set(KINDS)
    assert report.strikes
    broken = {promise.name for promise in report.promises if promise.broken}
    assert not broken - NOT_JUDGED, report.text()
    checked = {promise.name: promise.checked for promise in report.promises}
    assert min(checked.values()) > 0, report.text()
    assert report.acknowledged > 100

"""The storm itself, in small: a few kinds of faults, a fixed seed."""

from typing import Final

from storm import run
from storm.faults.campaign import NOT_REACHED
from storm.load.bodies import REQUIRED

KINDS: Final = (
    "worker killed",
    "Redis emptied",
    "cut after COMMIT",
    "cut before the acceptance of events",
    "accounts locked by an outsider",
)
# A machine under the load of other tests can stop the caller itself past its deadline.
NOT_JUDGED: Final = {"approval reported late"}


def test_a_small_storm_strikes_and_breaks_no_promise() -> None:
    options = run.Options(seed=7, seconds=12, rate=25, cardholders=16, kinds=KINDS)

    report = run.run(options)

    tried = {kind for kind, why in report.not_struck.items() if why != NOT_REACHED}
    assert not tried, report.text()
    assert {strike.kind for strike in report.strikes} <= set(KINDS)
    assert report.strikes
    broken = {promise.name for promise in report.promises if promise.broken}
    assert not broken - NOT_JUDGED, report.text()
    checked = {promise.name: promise.checked for promise in report.promises}
    assert min(checked.values()) > 0, report.text()
    assert report.acknowledged > 100
    assert all(report.interfaces.get(interface) for interface in REQUIRED), report.text()

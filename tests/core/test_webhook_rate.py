"""Webhook attempts a second, from a counter that `cardledger top` reads."""

from cardledger.commands.daily.top import WebhookRate


def test_one_look_is_no_rate() -> None:
    assert WebhookRate().add(0.0, 5) is None


def test_a_rate_is_the_mean_of_ten_seconds() -> None:
    rate = WebhookRate()

    rates = [rate.add(float(second), 10 * second) for second in range(30)]
    slowed = [rate.add(float(second), 290) for second in range(30, 45)]

    assert rates[1:] == [10.0] * 29
    assert slowed[0] == 9.0
    assert slowed[-1] == 0.0


def test_a_reset_of_the_statistics_is_no_negative_rate() -> None:
    rate = WebhookRate()
    rate.add(0.0, 1_000)

    assert rate.add(1.0, 3) is None
    assert rate.add(2.0, 5) == 2.0


def test_a_look_without_a_counter_is_skipped() -> None:
    rate = WebhookRate()
    rate.add(0.0, 10)

    assert rate.add(1.0, None) is None
    assert rate.add(2.0, 30) == 10.0

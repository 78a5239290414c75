"""What goes wrong between a network and a ledger, story by story, with the breaks that must come.

Each story plans its events, its lines and its breaks (`network_plan`).
"""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from random import Random
from typing import Final

from tests.finance_world import Network, due
from tests.network_plan import Must, Plan, Sent, Written

Story = Callable[[Plan], None]


def kept(plan: Plan) -> None:
    """Each kind of event, in its line as it is."""
    file = plan.file()
    cleared = plan.event(file, amount=50_000)
    returned = plan.event(file, "RETURN", amount=30_000, token="R")
    events = [
        cleared,
        plan.event(file, "CLEARING_REVERSAL", amount=plan.random.randint(1, 50_000)),
        returned,
        plan.event(file, "RETURN_REVERSAL", amount=plan.random.randint(1, 30_000), token="R"),
        plan.event(file, "FINANCIAL_AUTHORIZATION", token="F"),
        plan.event(None, "FINANCIAL_CREDIT_AUTHORIZATION", token="C"),
    ]
    for each in events:
        plan.match(plan.line(each, file), each)


def kept_by_every_rule(plan: Plan) -> None:
    file = plan.file()
    for number, by in enumerate(("ARN", "TOKEN", "CARD")):
        event = plan.event(file, token=f"K{number}", acquirer_reference=plan.arn())
        plan.match(plan.line(event, by=by), event, "REFERENCE" if by == "ARN" else by)


def without_details(plan: Plan) -> None:
    """An event without settlement details is of the day of its line."""
    file = plan.file()
    for number, by in enumerate(("REFERENCE", "TOKEN", "CARD")):
        event = plan.event(None, token=f"N{number}", bought=file[0])
        plan.match(plan.line(event, file, by), event, by)


def dropped(plan: Plan) -> None:
    event = plan.event(plan.file(), plan.random.choice(["CLEARING", "RETURN"]))
    assert event.settled is not None
    plan.must(
        Must(file=event.settled, kind="IN_LEDGER_ONLY", difference=-due(event.body), event=event)
    )


def changed(plan: Plan) -> None:
    """What differs is named by the first that fits: currency, type, amount."""
    file = plan.file()
    more, *others = (plan.event(file, token=f"D{n}") for n in range(3))
    line = plan.line(more, amount=str(more.body["amount"] + 7))
    plan.match(line, more)
    plan.must(Must(file=file, kind="AMOUNT_DIFFERS", difference=7, lines=[line]))
    line = plan.line(others[0], type="CREDIT", amount="99")
    plan.match(line, others[0])
    difference = -99 - due(others[0].body)
    plan.must(Must(file=file, kind="TYPE_DIFFERS", difference=difference, lines=[line]))
    line = plan.line(others[1], type="CREDIT", currency="EUR")
    plan.match(line, others[1])
    plan.must(
        Must(
            file=file,
            kind="CURRENCY_DIFFERS",
            difference=line.due,
            lines=[line],
            currency="EUR",
            ledger_difference=-due(others[1].body),
        )
    )


def twice(plan: Plan) -> None:
    """A line that is there again, in its file or a later one, whatever it is found by."""
    early, later = plan.two_files()
    for number, by in enumerate(("REFERENCE", "ARN", "TOKEN", "CARD")):
        event = plan.event(early, token=f"W{number}", acquirer_reference=plan.arn())
        again = early if plan.random.random() < 0.5 else later
        lines = [plan.line(event, by=by), plan.line(event, again, by)]
        rule = "REFERENCE" if by == "ARN" else by
        plan.match(lines if again == early else lines[:1], event, rule)
        of = lines if again == early else lines[1:]
        plan.must(Must(file=again, kind="DUPLICATE_LINE", difference=lines[1].due, lines=of))


def unknown(plan: Plan) -> None:
    """A line without an event, and the same again in its file or a later one."""
    early, later = plan.two_files()
    event = plan.event(
        early, network=Network(plan.network.world, plan.network.cardholder, plan.network.login)
    )
    for changes in ({"reference": f"{plan.name()}-none"}, {"reference": "", "token": ""}):
        again = plan.random.choice([early, later])
        lines = [plan.line(event, file, **changes) for file in (early, again)]
        firsts, seconds = (lines, lines) if again == early else (lines[:1], lines[1:])
        due_of_line = lines[0].due
        plan.must(
            Must(
                file=early,
                kind="IN_FILE_ONLY",
                cause="NO_EVENT",
                difference=due_of_line,
                lines=firsts,
                is_of_first=True,
            ),
            Must(file=again, kind="DUPLICATE_LINE", difference=due_of_line, lines=seconds),
        )


def _only_in_file(line: Written, cause: str) -> Must:
    return Must(file=line.file, kind="IN_FILE_ONLY", cause=cause, difference=line.due, lines=[line])


def _only_in_ledger(event: Sent, state: str = "open", difference: int | None = None) -> Must:
    assert event.settled is not None
    return Must(
        file=event.settled,
        kind="IN_LEDGER_ONLY",
        state=state,
        difference=-due(event.body) if difference is None else difference,
        event=event,
    )


def refused(plan: Plan) -> None:
    """The ledger has refused the event of a line: found by reference, token or card."""
    for number, by in enumerate(("REFERENCE", "TOKEN", "CARD")):
        event = plan.event(
            plan.file(),
            token=f"B{number}",
            outcome="REJECTED",
            merchant={"descriptor": f"Shop {plan.stories}", "mcc": "12345"},
        )
        plan.must(_only_in_file(plan.line(event, by=by), "REJECTED:MALFORMED"))
    event = plan.event(
        plan.file(), "FINANCIAL_AUTHORIZATION", amount=10**12, token="F", outcome="DECLINED"
    )
    plan.must(_only_in_file(plan.line(event), "REJECTED:INSUFFICIENT_FUNDS"))


def corrected(plan: Plan) -> None:
    """A rejected event comes again, corrected."""
    file = plan.file()
    wrong = plan.event(file, outcome="REJECTED", merchant={"descriptor": "x", "mcc": "12345"})
    line = plan.line(wrong)
    plan.first.append(_only_in_file(line, "REJECTED:MALFORMED"))
    right = Sent(wrong.body | {"merchant": {"descriptor": "x"}}, wrong.bought, is_late=True)
    plan.events.append(right)
    plan.match(line, right, is_late=True)
    plan.late(_explained(line, "REJECTED:MALFORMED"))


def _explained(line: Written, cause: str = "NO_EVENT") -> Must:
    """The break of a line whose event has come."""
    return Must(
        file=line.file,
        kind="IN_FILE_ONLY",
        cause=cause,
        state="explained",
        difference=0,
        lines=[line],
    )


def parked(plan: Plan) -> None:
    """A reversal waits for its clearing, which comes late, or never."""
    for number, by in enumerate(("REFERENCE", "TOKEN", "CARD")):
        file = plan.file()
        waits = plan.event(file, "CLEARING_REVERSAL", token=f"P{number}", outcome="PARKED")
        line = plan.line(waits, by=by)
        plan.first.append(_only_in_file(line, "PARKED"))
        if plan.random.random() < 0.5:
            plan.late(_only_in_file(line, "PARKED"))
            continue
        waits.counts_late = True
        clearing = plan.event(file, amount=waits.body["amount"], token=f"P{number}", is_late=True)
        plan.match(line, waits, by, is_late=True)
        plan.late(_explained(line, "PARKED"), _only_in_ledger(clearing))


def parked_on_another_day(plan: Plan) -> None:
    """A reversal that waited is of another day than the line that names it."""
    day, other = plan.two_files()
    waits = plan.event(day, "CLEARING_REVERSAL", outcome="PARKED", counts_late=True)
    line = plan.line(waits, other)
    plan.first.append(_only_in_file(line, "PARKED"))
    clearing = plan.event(day, amount=waits.body["amount"], is_late=True)
    plan.match(line, waits, is_late=True)
    plan.late(
        _explained(line, "PARKED"),
        _timing(line, waits),
        _only_in_ledger(waits, "explained"),
        _only_in_ledger(clearing),
    )


def ignored(plan: Plan) -> None:
    """A line says the reference of an event that has changed nothing."""
    plan.event(None, "AUTHORIZATION", amount=500)
    plan.event(None, "AUTHORIZATION_REVERSAL", amount=500)
    again = plan.event(None, "AUTHORIZATION_REVERSAL", amount=500, outcome="IGNORED")
    row = {"record": "D", "type": "PRESENTMENT", "amount": "500", "currency": "USD"}
    line = plan.write(plan.file(), row | {"reference": again.body["reference"]})
    plan.must(_only_in_file(line, "IGNORED"))


def on_another_day(plan: Plan) -> None:
    """A line in a file before or after the day of its event, once with another amount."""
    for more in (0, 5):
        files = list(plan.two_files())
        plan.random.shuffle(files)
        event = plan.event(files[0], token=f"O{more}")
        line = plan.line(event, files[1], amount=str(event.body["amount"] + more))
        plan.match(line, event)
        plan.must(_timing(line, event), _only_in_ledger(event, "explained"))
        if more:
            plan.must(Must(file=files[1], kind="AMOUNT_DIFFERS", difference=more, lines=[line]))


def _timing(line: Written, event: Sent) -> Must:
    return Must(
        file=line.file,
        kind="TIMING",
        state="explained",
        difference=due(event.body),
        lines=[line],
    )


def of_no_cycle(plan: Plan) -> None:
    """An event that names no cycle is in one of the files of its day: the first lacked it."""
    days = [day for day, cycles in plan.cycles.items() if len(cycles) > 1]
    for day in days[:1]:
        first, second = ((day, cycle) for cycle in plan.cycles[day])
        for file in (first, second):
            event = plan.event((day, None), token=f"C{file[1]}")
            plan.match(plan.line(event, file), event)
            if file == second:
                plan.must(
                    Must(
                        file=first,
                        kind="IN_LEDGER_ONLY",
                        state="explained",
                        difference=0,
                        event=event,
                    )
                )


def fees(plan: Plan) -> None:
    """Fees of the network are events of no card: their file books them, and nothing differs."""
    file = plan.file()
    for kind in ("FEE", "FEE_REVERSAL"):
        row = {"record": "D", "type": kind, "amount": "315", "currency": "USD"}
        plan.write(file, row | {"reference": f"{plan.name()}-{kind}"})


def equal_purchases(plan: Plan) -> None:
    """Two equal purchases of a day, and one each two days before and after: the nearest dates."""
    file, amount = plan.file(), plan.amount()
    days = [file[0] - timedelta(days=n) for n in (5, 3, 3, 0)]
    events = [
        plan.event(file, amount=amount, token=f"E{n}", bought=day) for n, day in enumerate(days)
    ]
    lines = [
        plan.line(event, by="CARD", transaction_date=str(event.bought + timedelta(days=later)))
        for event, later in zip(events, (0, 0, 0, 1), strict=True)
    ]
    plan.match(lines[0], events[0], "CARD")
    plan.match(lines[1:3], events[1:3], "CARD")
    plan.match(lines[3], events[3], "CARD")


def nearest_of_another_day(plan: Plan) -> None:
    """A purchase on the date of the line is nearer than one that settles on the day of its file."""
    early, later = plan.two_files()
    amount, bought = plan.amount(), early[0]
    near = plan.event(early, amount=amount, token="near", bought=bought)
    far = plan.event(later, amount=amount, token="far", bought=bought - timedelta(days=2))
    line = plan.line(near, later, "CARD")
    plan.match(line, near, "CARD")
    plan.must(_timing(line, near), _only_in_ledger(near, "explained"), _only_in_ledger(far))


def tied(plan: Plan) -> None:
    """Purchases as near as each other on both sides, and two events with one reference."""
    file, amount = plan.file(), plan.amount()
    middle = file[0] - timedelta(days=2)
    sides = [
        plan.event(file, amount=amount, token=f"T{n}", bought=middle + timedelta(days=n))
        for n in (-1, 1)
    ]
    line = plan.line(sides[0], by="CARD", transaction_date=str(middle))
    plan.must(_ambiguous(line), *map(_only_in_ledger, sides))
    reference = f"{plan.name()}-same"
    same = [plan.event(file, token=f"S{n}", source=f"sender-{n}", amount=500 + n) for n in (1, 2)]
    for each in same:
        each.body["reference"] = f"{plan.network.name}-{reference}"
    line = plan.line(same[0], amount="499")
    plan.must(_ambiguous(line), *map(_only_in_ledger, same))


def _ambiguous(line: Written, state: str = "open", difference: int | None = None) -> Must:
    return Must(
        file=line.file,
        kind="AMBIGUOUS",
        state=state,
        difference=line.due if difference is None else difference,
        lines=[line],
    )


def tied_until_later(plan: Plan) -> None:
    """Of two events that tie one is in a later file: so the line is the other one."""
    early, later = plan.two_files()
    amount, middle = plan.amount(), early[0] - timedelta(days=2)
    sides = [
        plan.event(early, amount=amount, token=f"U{n}", bought=middle + timedelta(days=n))
        for n in (-1, 1)
    ]
    line = plan.line(sides[0], by="CARD", transaction_date=str(middle))
    named = plan.line(sides[0], later)
    plan.match(named, sides[0])
    plan.match(line, sides[1], "CARD")
    plan.must(
        _ambiguous(line, "explained", 0),
        _only_in_ledger(sides[0], "explained"),
        _only_in_ledger(sides[1], "explained", 0),
        _timing(named, sides[0]),
    )


def one_reference_twice(plan: Plan) -> None:
    """Of two events with one reference the one that is equal in everything is in the line."""
    file = plan.file()
    same = [plan.event(file, token=f"X{n}", source=f"sender-{n}", amount=500 + n) for n in (1, 2)]
    for each in same:
        each.body["reference"] = f"{plan.network.name}-{plan.name()}-same"
    plan.match(plan.line(same[1]), same[1])
    plan.must(_only_in_ledger(same[0]))


def late(plan: Plan) -> None:
    """The event of a line comes later, whatever it is found by, once with another amount."""
    for number, by in enumerate(("REFERENCE", "ARN", "TOKEN", "CARD", "MORE")):
        event = plan.event(
            plan.file(), token=f"L{number}", is_late=True, acquirer_reference=plan.arn()
        )
        if by == "MORE":
            line = plan.line(event, amount=str(event.body["amount"] + 3))
        else:
            line = plan.line(event, by=by)
        plan.match(line, event, by if by in {"TOKEN", "CARD"} else "REFERENCE", is_late=True)
        plan.first.append(_only_in_file(line, "NO_EVENT"))
        plan.late(_explained(line))
        if by == "MORE":
            plan.late(Must(file=line.file, kind="AMOUNT_DIFFERS", difference=3, lines=[line]))
    dropped_late = plan.event(plan.file(), token="L", is_late=True)
    plan.late(_only_in_ledger(dropped_late))


def late_on_another_day(plan: Plan) -> None:
    """The event comes later, and is of another day than its line: in either order."""
    for number, by in enumerate(("REFERENCE", "TOKEN", "CARD")):
        files = list(plan.two_files())
        plan.random.shuffle(files)
        event = plan.event(files[0], token=f"A{number}", is_late=True)
        line = plan.line(event, files[1], by)
        plan.match(line, event, by, is_late=True)
        plan.first.append(_only_in_file(line, "NO_EVENT"))
        plan.late(_explained(line), _timing(line, event), _only_in_ledger(event, "explained"))


def late_and_twice(plan: Plan) -> None:
    """The event of a line that is there twice comes later: it is the first of them."""
    file = plan.file()
    event = plan.event(file, is_late=True)
    lines = [plan.line(event), plan.line(event)]
    second = Must(file=file, kind="DUPLICATE_LINE", difference=lines[0].due, lines=lines)
    plan.first += [
        Must(
            file=file,
            kind="IN_FILE_ONLY",
            cause="NO_EVENT",
            difference=lines[0].due,
            lines=lines,
            is_of_first=True,
        ),
        second,
    ]
    plan.match(lines, event, is_late=True)
    plan.late(
        Must(
            file=file,
            kind="IN_FILE_ONLY",
            cause="NO_EVENT",
            state="explained",
            difference=0,
            lines=lines,
            is_of_first=True,
        ),
        second,
    )


def late_for_two_lines(plan: Plan) -> None:
    """A line names the reference of a late event, and one in an earlier file could be it, too."""
    for by in ("TOKEN", "CARD"):
        early, later = plan.two_files()
        event = plan.event(later, token=by, bought=early[0], is_late=True)
        other, named = plan.line(event, early, by), plan.line(event)
        plan.match(named, event, is_late=True)
        plan.must(_only_in_file(other, "NO_EVENT"))
        plan.first.append(_only_in_file(named, "NO_EVENT"))
        plan.late(_explained(named))


STORIES: Final[tuple[Story, ...]] = (
    kept,
    kept_by_every_rule,
    without_details,
    dropped,
    changed,
    twice,
    unknown,
    refused,
    corrected,
    parked,
    parked_on_another_day,
    ignored,
    on_another_day,
    of_no_cycle,
    fees,
    equal_purchases,
    nearest_of_another_day,
    tied,
    tied_until_later,
    one_reference_twice,
    late,
    late_on_another_day,
    late_and_twice,
    late_for_two_lines,
)

LATE_STORIES: Final[tuple[Story, ...]] = (
    corrected,
    parked_on_another_day,
    late,
    late_on_another_day,
    late_and_twice,
    late_for_two_lines,
)
"""Those with events that come after the files."""


def planned(
    network: Network, seed: int, days: Sequence[date], stories: Sequence[Story] = STORIES
) -> Plan:
    """Return a plan of `stories` in any order, about files of `days`; some days have two."""
    random = Random(seed)  # noqa: S311 - not for secrets
    cycles: dict[date, tuple[str | None, ...]] = {
        day: ("1", "2") if random.random() < 0.4 else (None,) for day in days
    }
    plan = Plan(network, random, cycles)
    for story in random.sample(stories, len(stories)):
        plan.stories += 1
        plan.story = story.__name__
        story(plan)
    return plan

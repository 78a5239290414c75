"""Where a mover begins to read, whatever database transactions commit in whatever order."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.messaging.enqueued_events import EnqueuedEvent, Progress, Turn, progressed
from cardledger.ledger.messaging.inbox import Lane
from cardledger.schema.ids import Id

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Programs:
    """Database transactions that enqueue, commit and roll back, as PostgreSQL numbers them."""

    def __init__(self) -> None:
        self.running: dict[int, list[int]] = {}  # Positions by transaction; odd ones are bulk.
        self.committed: list[int] = []
        self.progress = Progress()
        self._next_id = 100
        self._last_position = 0

    def begin(self) -> None:
        self.running[self._next_id] = []
        self._next_id += 1

    def enqueue(self, which: int) -> None:
        if self.running:
            self._last_position += 1
            self.running[sorted(self.running)[which % len(self.running)]].append(
                self._last_position
            )

    def end(self, which: int, *, commits: bool) -> None:
        if self.running:
            ended = self.running.pop(sorted(self.running)[which % len(self.running)])
            self.committed += ended if commits else []

    def turn(self) -> Turn:
        own_id = self._next_id
        self._next_id += 1
        oldest = min(self.running, default=own_id)
        return Turn(NOON, oldest, own_id, self._last_position, self.progress, NOON)


def look(programs: Programs, limit: int) -> None:
    """Move what a mover sees."""
    turn = programs.turn()
    visible = [place for place in programs.committed if place >= turn.progress.begins_at]
    visible = sorted(visible, key=lambda place: (place % 2, place))[:limit]
    programs.committed = [place for place in programs.committed if place not in visible]
    events = [
        EnqueuedEvent(place, Id(bytes(16)), Lane(place % 2), "s", "r", "{}", NOON)
        for place in visible
    ]
    programs.progress = progressed(turn, events, are_all=len(events) < limit)


steps = st.tuples(
    st.sampled_from(["begin", "enqueue", "commit", "roll back", "look"]), st.integers(0, 9)
)


@given(st.lists(steps, max_size=80), st.integers(1, 4))
def test_no_event_is_left_behind_and_the_beginning_follows(
    schedule: list[tuple[str, int]], limit: int
) -> None:
    programs = Programs()
    for step, which in schedule:
        match step:
            case "begin":
                programs.begin()
            case "enqueue":
                programs.enqueue(which)
            case "look":
                look(programs, limit)
            case _:
                programs.end(which, commits=step == "commit")
        assert all(place >= programs.progress.begins_at for place in programs.committed)
        open_places = [place for places in programs.running.values() for place in places]
        assert all(place >= programs.progress.begins_at for place in open_places)

    while programs.running:
        programs.end(0, commits=True)
    for _ in range(120):
        look(programs, limit)

    assert programs.committed == []
    assert programs.progress.begins_at == programs.turn().last_position + 1


def test_an_open_database_transaction_keeps_the_beginning() -> None:
    programs = Programs()
    programs.begin()
    programs.enqueue(0)
    for _ in range(5):
        programs.begin()
        programs.enqueue(1)
        programs.end(1, commits=True)
        look(programs, 10)
    kept = programs.progress.begins_at

    programs.end(0, commits=True)
    for _ in range(5):
        look(programs, 10)

    assert (kept, programs.progress.begins_at) == (0, 7)

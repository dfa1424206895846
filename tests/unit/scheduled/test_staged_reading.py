"""Positions of the walk through staged messages: whatever commits when, nothing is passed by."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from skep.broker.staged.read import Position, StagedBatch, StagedMessage, position_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def message(number, id_=0):
    return StagedMessage(number, id_, ("q", "p"), "x", b"1", None, None, None, None)


def portion(*numbers, is_cut=False):
    return StagedBatch([message(number) for number in numbers], NOW, "seen now", is_cut)


def test_an_empty_portion_moves_only_what_was_seen():
    assert position_after(Position(5, "seen before"), portion()) == Position(5, "seen now")


def test_a_whole_portion_moves_the_floor_to_its_last_number():
    assert position_after(Position(5, "seen before"), portion(3, 6, 9)) == Position(9, "seen now")


def test_late_ones_do_not_move_the_floor_back():
    assert position_after(Position(5, "seen before"), portion(3)) == Position(5, "seen now")


def test_of_a_cut_portion_the_last_transaction_may_have_more():
    assert position_after(Position(5, "b"), portion(6, 7, 7, is_cut=True)) == Position(
        6, "seen now"
    )
    assert position_after(Position(5, "b"), portion(3, 9, is_cut=True)) == Position(5, "seen now")


def test_a_portion_cut_among_late_ones_moves_nothing():
    assert position_after(Position(5, "b"), portion(3, 4, is_cut=True)) == Position(5, "b")


class Database:
    """Transactions that draw numbers and commit later, and what a snapshot of them shows.

    Transaction ids are those of the plan's order; a snapshot is the set of those committed.
    """

    def __init__(self):
        self.drawn = {}
        self.committed = set()
        self.sizes = {}
        self.taken = set()
        self.snapshots = []

    def draw(self, xid, size):
        self.drawn[xid] = len(self.drawn) + 1
        self.sizes[xid] = size

    def read(self, position, limit):
        """Do what read_staged does."""
        seen = self.snapshots[int(position.snapshot)] if position.snapshot else set()
        found = [
            (self.drawn[xid], place)
            for xid in self.committed
            for place in range(self.sizes[xid])
            if (xid, place) not in self.taken
            and (self.drawn[xid] > position.floor or (position.snapshot and xid not in seen))
        ]
        self.snapshots.append(frozenset(self.committed))
        taken = sorted(found)[:limit]
        xids = {number: xid for xid, number in self.drawn.items()}
        self.taken |= {(xids[number], place) for number, place in taken}
        messages = [message(number, place) for number, place in taken]
        return StagedBatch(messages, NOW, str(len(self.snapshots) - 1), len(taken) >= limit)


STEPS = st.lists(
    st.tuples(st.just("draw"), st.integers(1, 4))
    | st.tuples(st.just("commit"), st.integers(0, 5))
    | st.tuples(st.just("read"), st.integers(1, 5)),
    max_size=60,
)


@given(steps=STEPS)
def test_a_walk_meets_every_message_whatever_commits_when(steps):
    database, position, under_way = Database(), Position(), []
    for kind, value in steps:
        if kind == "draw":
            under_way.append(len(database.drawn))
            database.draw(under_way[-1], value)
        elif kind == "commit" and under_way:
            database.committed.add(under_way.pop(value % len(under_way)))
        elif kind == "read":
            position = position_after(position, database.read(position, value))
    database.committed.update(under_way)

    while (read := database.read(position, 3)).messages:
        position = position_after(position, read)

    assert database.taken == {
        (xid, place) for xid, size in database.sizes.items() for place in range(size)
    }

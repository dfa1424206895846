"""Positions against a model: a log in which many transactions are open at the same time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.spark.source.positions import (
    NOTHING,
    Address,
    InvalidPosition,
    Joining,
    Part,
    Position,
    Snapshot,
    spans_between,
)
from tests.spark.support.spans import contains, includes, sees

SYSTEM = "7000000000000000001:16384"
xids = st.integers(3, 40)
snapshots = st.builds(
    lambda xmax, open_ones: Snapshot(xmax, frozenset(xid for xid in open_ones if xid < xmax)),
    st.integers(1, 40),
    st.frozensets(xids, max_size=8),
)


def full(seen, checked=NOTHING):
    return Position(SYSTEM, seen, checked)


def seen_of(snapshot):
    return {xid for xid in range(1, 50) if sees(snapshot, xid)}


@given(snapshots)
def test_a_snapshot_survives_its_spelling(snapshot):
    assert Snapshot.parse(str(snapshot)) == snapshot


@pytest.mark.parametrize(
    "text", ["", "5", "5:4:", "0:4:", "3:9:9", "4:9:3", "3:9:4,", "3:9:4;drop", "a:b:c", "3:9: 4"]
)
def test_what_is_no_snapshot_is_refused(text):
    with pytest.raises(InvalidPosition):
        Snapshot.parse(text)


@given(snapshots, snapshots)
def test_one_snapshot_covers_another_if_it_sees_all_of_it(one, other):
    assert one.covers(other) == (seen_of(other) <= seen_of(one))


@given(snapshots, snapshots)
def test_what_snapshots_have_in_common_is_what_both_of_them_see(one, other):
    assert seen_of(one.common(other)) == seen_of(one) & seen_of(other)


@given(snapshots, xids)
def test_a_cut_snapshot_sees_the_same_below_the_cut_and_nothing_beyond(snapshot, xmax):
    assert seen_of(snapshot.cut(xmax)) == {xid for xid in seen_of(snapshot) if xid < xmax}


@given(
    snapshots,
    snapshots,
    st.none() | st.integers(0, 2**50),
    st.none() | st.tuples(xids, xids),
    st.none() | st.sets(st.integers(1, 12)).map(sorted).map(tuple),
)
def test_a_position_survives_its_spelling_and_is_spelled_in_sorted_order(
    seen, other, since, at, ids
):
    part = Part(other, Address(*at, 1)) if at else None
    position = Position(
        *(SYSTEM, seen, other, 5, since, part, ids, ids, 3, since),
        joining=Joining(ids, None, other, Address(1, 2, 3), since) if ids else None,
        is_rewound=since is None,
    )

    text = json.dumps(position.to_json())

    assert text == json.dumps(position.to_json(), sort_keys=True)
    assert Position.parse(text) == position


@pytest.mark.parametrize(
    "text",
    [
        "latest",
        "[]",
        "{}",
        "null",
        '{"queue":{"Default":5}}',
        '{"seen":"1:1:","checked":"1:1:","system":"1; drop","taken":0}',
        '{"seen":"1:1:","checked":"1:1:","system":"1:2","taken":0,"more":1}',
        '{"seen":"1:1:","checked":"1:1:","system":"1:2","taken":0,"part":{"through":[1]}}',
        '{"seen":5,"checked":"1:1:","system":"1:2","taken":0}',
        '{"seen":"1:1:","checked":"1:1:","system":"1:2"}',
        '{"seen":"1:1:","checked":"1:1:","system":"1:2","taken":0,"version":2,"queues":"1-"}',
        '{"seen":"1:1:","checked":"1:1:","system":"1:2","taken":0,"version":3}',
    ],
)
def test_what_is_no_position_is_refused(text):
    with pytest.raises(InvalidPosition):
        Position.parse(text)


def test_positions_of_two_databases_have_nothing_between_them():
    with pytest.raises(InvalidPosition):
        spans_between(full(NOTHING), Position("8:1", Snapshot(9), NOTHING))


def test_a_start_behind_the_end_is_refused_with_advice():
    with pytest.raises(InvalidPosition, match="consumerGroup"):
        spans_between(full(Snapshot(20)), full(Snapshot(10)))


class Database:
    """Transactions that begin, write segments and end in any order."""

    def __init__(self):
        self.next_xid = 3
        self.open = {}
        self.committed = []

    def begin(self):
        self.open[self.next_xid] = []
        self.next_xid += 1

    def write(self, which, partition_id):
        if self.open:
            xid = sorted(self.open)[which % len(self.open)]
            first = len(self.committed) * 10 + sum(map(len, self.open.values())) + 1
            self.open[xid].append(Address(xid, partition_id, first))

    def end(self, which, commits):
        if self.open:
            xid = sorted(self.open)[which % len(self.open)]
            addresses = self.open.pop(xid)
            self.committed += addresses if commits else []

    def snapshot(self):
        """What a reader takes: the present, cut behind the newest segment there is."""
        newest = max((address.xid for address in self.committed), default=0)
        return Snapshot(self.next_xid, frozenset(self.open)).cut(newest + 1)


class Reader:
    """Reads micro-batches of at most `limit` segments, as the stream reader plans them."""

    def __init__(self, database, start):
        self.database = database
        self.position = full(start)
        self.steps = []

    def read(self, limit):
        start = self.position
        target = start.target if start.part else self.database.snapshot()
        waiting = self.found(start, full(target))
        if not waiting:
            return []
        taken = waiting[:limit]
        if len(taken) < len(waiting):
            self.position = Position(SYSTEM, start.seen, NOTHING, part=Part(target, taken[-1]))
        else:
            self.position = full(target)
        self.steps.append((start, self.position, taken))
        return taken

    def found(self, start, end):
        spans = spans_between(start, end)
        return sorted(a for a in self.database.committed for s in spans if includes(s, a))


steps = st.lists(
    st.one_of(
        st.just(("begin",)),
        st.tuples(st.just("write"), st.integers(0, 9), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([True, True, False])),
        st.tuples(st.just("read"), st.integers(1, 3)),
    ),
    max_size=80,
)


@given(steps)
def test_every_segment_is_read_once_however_late_it_commits_and_the_same_on_replay(script):
    database = Database()
    reader = Reader(database, NOTHING)
    delivered = []
    for name, *arguments in script:
        if name == "read":
            delivered += reader.read(*arguments)
        else:
            getattr(database, name)(*arguments)
    while database.open:
        database.end(0, commits=True)
    while taken := reader.read(2):
        delivered += taken

    assert sorted(delivered) == sorted(database.committed)
    assert [reader.found(start, end) for start, end, _ in reader.steps] == [
        taken for _, _, taken in reader.steps
    ]
    final = reader.steps[-1][1] if reader.steps else reader.position
    assert all(contains(final, address) for address in database.committed)


@given(steps)
def test_any_two_positions_of_a_reader_have_between_them_what_the_later_one_adds(script):
    database = Database()
    reader = Reader(database, NOTHING)
    positions = [reader.position]
    for name, *arguments in script:
        if name == "read":
            reader.read(*arguments)
            positions.append(reader.position)
        else:
            getattr(database, name)(*arguments)

    for number, start in enumerate(positions):
        for end in positions[number:]:
            found = reader.found(start, end)
            assert found == sorted(
                a for a in database.committed if contains(end, a) and not contains(start, a)
            )

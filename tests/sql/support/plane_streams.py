"""What runners of a stream do: cycles of acks, pushes and state, against a model of the state."""

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.sql.support.plane_choices import Actions, action, groups, partitions, picks, recency
from tests.sql.support.streaming import BYTES_MAX, WINDOW_KEY, StateOp, cycle, state

KEYS = ("k", "l", WINDOW_KEY)
LARGE = f'"{"x" * 400}"'
"""Of three such values one is too many."""

STATE = """
    select s.partition_id, s.version, s.row_count, s.byte_count,
           coalesce(s.closed_keys, '{}') as closed,
           array(select (r.key, r.value::text, r.version) from skep.stream_state r
                 where r.query_id = s.query_id and r.partition_id = s.partition_id) as rows
    from skep.stream_shard s where s.query_id = $1
"""

operations = st.lists(
    st.builds(
        StateOp,
        st.sampled_from(KEYS),
        st.sampled_from([None, "1", "2", LARGE]),
        version=st.sampled_from([None, None, None, 0, 1, 2]),
    ),
    max_size=3,
)
cycles = st.fixed_dictionaries(
    {
        "index": st.integers(0, 3),
        "status": st.sampled_from(
            ["completed", "completed", "completed", "failed", "retry", "dlq"]
        ),
        "operations": operations,
        "partition": partitions,
        "number": st.integers(0, 2),
        "release": st.booleans(),
        "delay_ms": st.sampled_from([0, 0, 3000]),
        "is_repeated": st.booleans(),
    }
)


@dataclass
class Shard:
    """The state of a stream for one partition."""

    rows: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Values and their versions."""
    version: int = 0
    closed: list[str] = field(default_factory=list[str])
    """Windows that were flushed since the shard was last read whole."""

    @property
    def size(self) -> int:
        return sum(len(key) + len(value) for key, (value, _) in self.rows.items())

    def apply(self, operations: list[StateOp], *, has_ack: bool) -> tuple[str, int] | None:
        """Apply operations in order; return why and at which this ended, if it did."""
        size, closed = self.size, list(self.closed)
        for number, each in enumerate(operations, 1):
            version = self.rows.get(each.key, ("", 0))[1]
            is_window = each.key == WINDOW_KEY
            if has_ack and each.key in closed:
                return "state_gone", number
            if each.version not in (None, version):
                return "state_changed", number
            if each.value is not None:
                self.version += 1
                self.rows[each.key] = each.value, self.version
            elif each.key in self.rows:
                del self.rows[each.key]
                self.closed.append(each.key)
            elif is_window or not has_ack:
                return "state_gone", number
        if self.size > max(size, BYTES_MAX):
            return "shard_full", len(operations)
        if has_ack:
            self.closed = []
        return None


class Streams(Actions):
    """A part of the scene, which has the plane, the log, claims and shards by partition id."""

    @precondition(lambda self: self.claims)
    @rule(recency=recency, cycle=cycles)
    def commit_cycle(self, recency, cycle):
        """Commit a cycle for a batch that was taken some time ago."""
        self._commit_cycle(self._claim(recency), **cycle)

    @rule(group=groups, partition=partitions, batch=st.integers(1, 4), cycle=cycles)
    def pop_and_commit_cycle(self, group, partition, batch, cycle):
        """Take messages, compute, and commit the cycle."""
        claims = len(self.claims)
        self.pop_partition(group, partition, batch, auto_ack=False)
        if len(self.claims) > claims:
            self._commit_cycle(self._claim(0), **cycle)

    def _commit_cycle(
        self, claim, index, status, operations, partition, number, release, delay_ms, is_repeated
    ):
        """Ack a message of a claim, change state and push results, all or nothing."""
        self.arun(self._provision(partition))
        [ack] = self._acks(
            claim, [(index % len(claim.offsets), status)], is_fenced=True, is_offset_known=True
        )
        names = self._names(partition, number, [])
        options = {
            "acks": [ack],
            "pushes": {self.plane.partitions[partition].id: names} if names else {},
            "release": release,
            "delay_ms": delay_ms,
            "id_": uuid4(),
        }
        settled = self._commit(claim.partition_id, operations, **options)
        if claim.partition_id not in {each.id for each in self.plane.partitions.values()}:
            assert settled.refusal == ("no_partition", None)
        elif self._is_alive(claim):
            expected = self._expect_cycle(claim, ack, operations, release, delay_ms)
            assert settled.refusal == expected
            if names and expected is None:
                self.plane.push(partition, names, self.log.now)
            if is_repeated and expected is None:
                again = self._commit(claim.partition_id, operations, is_repeated=True, **options)
                assert again.refusal is None
                assert (again.outcomes, again.offsets) == (settled.outcomes, settled.offsets)
        else:
            assert settled.refusal == ("no_group", 1)
        self._compare_state()

    def _commit(self, partition_id, operations, **options):
        return self.arun(cycle(self.log, self.query_id, partition_id, *operations, **options))

    def _expect_cycle(self, claim, ack, operations, release, delay_ms):
        """Let the model do a cycle and return why it is refused, if it is."""
        now, after = self.log.now, deepcopy(self.plane)
        outcomes = after.ack(claim.group, claim.partition, [ack], now)
        refusal = self._refusal(claim, outcomes, is_required=False)
        if refusal is None and outcomes == ["noop"]:
            refusal = "already_done", 1
        if refusal is not None:
            is_done = refusal[0] == "already_done" and ack.status == "completed"
            return ("replayed", 1) if is_done else refusal
        shard = deepcopy(self._shard(claim.partition_id))
        refusal = shard.apply(operations, has_ack=True)
        if refusal is not None:
            if refusal[0] != "shard_full":
                # What the runner knew is out of date; the batch comes again.
                self._shard(claim.partition_id).closed = []
                self.plane.readers[claim.partition, claim.group].end_lease(now)
            return refusal
        self.plane, self.shards[claim.partition_id] = after, shard
        reader = after.readers[claim.partition, claim.group]
        if release and reader.leased is not None:
            reader.end_lease(now + timedelta(milliseconds=delay_ms))
        return None

    @rule(
        action=st.one_of(
            action("flush", partition=partitions, operations=operations, number=st.integers(0, 2)),
            action("read_state", pick=picks),
        )
    )
    def run_stream(self, action):
        """Do what a runner does without messages."""
        self.perform(action)

    def flush(self, partition, operations, number):
        """Close windows and push their results."""
        self.arun(self._provision(partition))
        names, id_ = self._names(partition, number, []), self.plane.partitions[partition].id
        settled = self._commit(id_, operations, pushes={id_: names} if names else {})
        shard = deepcopy(self._shard(id_))
        refusal = shard.apply(operations, has_ack=False)
        assert settled.refusal == refusal
        if refusal is None:
            self.shards[id_] = shard
            if names:
                self.plane.push(partition, names, self.log.now)
        self._compare_state()

    def read_state(self, pick):
        """Read a shard whole, as runners do before they process messages."""
        if self.shards:
            id_ = sorted(self.shards)[pick % len(self.shards)]
            found = self.arun(state(self.log, self.query_id, id_))
            if id_ in {each.id for each in self.plane.partitions.values()}:
                shard = self.shards[id_]
                assert found == {key: value for key, (value, _) in shard.rows.items()}
                shard.closed = []
            else:
                assert found == {}, "the state of a partition outlived it"

    def _shard(self, partition_id):
        return self.shards.setdefault(partition_id, Shard())

    def _compare_state(self):
        """Check that the database has the state of the model, and none of partitions removed."""
        living = {each.id for each in self.plane.partitions.values()}
        self.shards = {id_: shard for id_, shard in self.shards.items() if id_ in living}
        found = {row["partition_id"]: row for row in self._state_rows()}
        assert found.keys() <= living
        for id_, shard in self.shards.items():
            row = found.pop(id_, None)
            assert shard == (_shard_of(row) if row else Shard())
            assert row is None or (row["row_count"], row["byte_count"]) == (
                len(shard.rows),
                shard.size,
            )
        assert not any(row["row_count"] for row in found.values())

    def _state_rows(self):
        return self.arun(self.log.rows(STATE, self.query_id))


def _shard_of(row):
    rows = {key: (value, version) for key, value, version in row["rows"]}
    return Shard(rows, row["version"], row["closed"])

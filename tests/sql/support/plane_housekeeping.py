"""What time and background work do to the queue, in the database and in the model."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.sql.support.housekeeping import SERVICE
from tests.sql.support.plane_choices import Actions, action, changes, picks
from tests.sql.support.plane_model import Hold


class Housekeeping(Actions):
    """A part of the scene, which has the plane, the log, the queue and a keeper."""

    @rule(seconds=st.sampled_from([0.000001, 1, 1, 5, 5, 20, 60]))
    def let_time_pass(self, seconds):
        self.arun(self.log.advance(seconds))

    @rule(change=changes)
    def configure(self, change):
        self.arun(self.log.configure(self.queue, **change))
        self.plane.options = replace(self.plane.options, **change)

    @rule(
        action=st.one_of(
            action(
                "retain", kind=st.sampled_from(["retention", "completed"]), limit=st.integers(1, 4)
            ),
            action("evict", limit=st.integers(1, 3)),
            action("drop_oldest", number=st.integers(1, 6)),
            action("remove_idle_partitions", idle_s=st.sampled_from([5, 30]), look=picks),
        )
    )
    def keep_house(self, action):
        """Do what a broker does in the background."""
        self.perform(action)

    def retain(self, kind, limit):
        reached, is_done = 0, False
        while not is_done:
            step = self.arun(self.keeper.retain(kind, queue=self.queue, after=reached, limit=limit))
            reached, is_done = step.reached, step.is_done
        self.plane.retain(kind, self.log.now)

    def evict(self, limit):
        """Let messages die that waited too long, wherever a partition is ready."""
        if self.plane.is_paused:
            return
        ready = {
            key
            for key, row in self.arun(self._cursors()).items()
            if row["available_at"] is not None and row["available_at"] <= self.log.now
        }
        stop, total = None, 0
        while stop is None or not stop.is_done:
            stop = self.arun(self.keeper.evict(queue=self.queue, limit=limit, stop=stop))
            total += stop.messages
        new = set()
        for partition, group in ready:
            waited = self.plane.waits_too_long(group, partition, self.log.now)
            new |= {(group, partition, at) for at in waited}
            if waited:
                self.plane.readers[partition, group].lose(range(1, waited[-1] + 1), self.log.now)
        assert total == len(new - self.plane.letters)
        self.plane.letters |= new

    def drop_oldest(self, number):
        """Make room in a queue that may only hold so much."""
        query = "select * from skep.drop_oldest($1, $2)"
        dropped = self.arun(self.log.row(query, self.queue_id, number))
        assert tuple(dropped) == self.plane.drop_oldest(number, self.log.now)

    def remove_idle_partitions(self, idle_s, look):
        """Remove empty partitions, looking at so many in one step."""
        removed, reached, is_done = 0, 0, False
        while not is_done:
            step = self.arun(
                self.log.row(
                    "select * from skep.remove_idle_partitions($1, $2, $3, $4, $5, $6)",
                    SERVICE,
                    self.keeper.holder,
                    self.keeper.run_id,
                    reached,
                    1 + look,
                    idle_s,
                )
            )
            removed += step["partitions"]
            reached, is_done = step["reached"], step["is_done"]
        idle = self.plane.remove_idle(self.log.now - timedelta(seconds=idle_s))
        assert removed == len(idle)

    @rule(
        action=st.one_of(
            action(
                "place_hold",
                reader=st.sampled_from(["spark", "flink"]),
                pick=st.one_of(st.none(), picks),
                keep_s=st.sampled_from([10, 60]),
            ),
            action("release_hold", reader=st.sampled_from(["spark", "flink"])),
        )
    )
    def read_from_outside(self, action):
        """Do what a reader does that is no consumer."""
        self.perform(action)

    def place_hold(self, reader, pick, keep_s):
        """Keep what a reader has not seen, which is at the end or where one was before."""
        position, number = None, self.plane.segments_written
        if pick is not None and self.positions:
            position, number = self.positions[-1 - pick % len(self.positions)]
        placed = self.arun(
            self.keeper.hold(reader, queue=self.queue, position=position, keep_s=keep_s)
        )
        lapses_at = self.log.now + timedelta(seconds=keep_s)
        self.plane.holds[reader] = Hold(number, lapses_at)
        if position is None:
            self.positions.append((placed["position"], number))

    def release_hold(self, reader):
        query = "select skep.release_hold($1, $2)"
        released = self.arun(self.log.value(query, self.queue, reader))
        assert released == (self.plane.holds.pop(reader, None) is not None)

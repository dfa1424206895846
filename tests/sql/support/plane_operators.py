"""What operators do to groups, messages and the queue, in the database and in the model."""

from datetime import timedelta

import asyncpg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.sql.support.letters import redrive
from tests.sql.support.log import QUEUE_MODE
from tests.sql.support.plane_choices import GROUPS, Actions, action, groups, partitions, picks
from tests.sql.support.plane_model import Plane

LEFT_BEHIND = """
    select (select count(*) from skep.partition where queue_id = $1)
         + (select count(*) from skep.cursor where queue_id = $1)
         + (select count(*) from skep.segment where queue_id = $1)
         + (select count(*) from skep.dead_letter where queue_id = $1)
         + (select count(*) from skep.scheduled where queue_id = $1)
         + (select count(*) from skep.consumer_group where queue_id = $1)
         + (select count(*) from skep.removed_queue where queue_id = $1)
         + (select count(*) from skep.hold where queue_id = $1)
         + (select count(*) from skep.stream_shard)
"""


class Operators(Actions):
    """A part of the scene, which has the plane, the log and the queue."""

    @rule(
        action=st.one_of(
            action(
                "subscribe",
                group=groups,
                mode=st.sampled_from(["all", "new", "timestamp"]),
                offset_s=st.sampled_from([-20, 20]),
                conflation=st.sampled_from([None, True, False]),
            ),
            action("change_subscription", group=groups, offset_s=st.sampled_from([-20, 20])),
            action("pause_group", group=groups, is_paused=st.booleans()),
            action(
                "seek_queue",
                group=groups,
                to=st.sampled_from(["end", "start", "timestamp"]),
                ago=st.sampled_from([0, 5, 30]),
            ),
            action("seek_partition", group=groups, partition=partitions, offset=st.integers(0, 12)),
            action("forget_group", group=groups, is_kept=st.booleans()),
        )
    )
    def look_after_groups(self, action):
        """Do something to a consumer group."""
        self.perform(action)

    @rule(
        action=st.one_of(
            action("sequence_what_is_due"),
            action("delete_message", partition=partitions, pick=picks),
            action(
                "give_up_message",
                partition=partitions,
                pick=picks,
                group=st.sampled_from([*GROUPS[1:], None]),
            ),
            action("end_backoff", partition=partitions, pick=picks),
            action("clear", partition=st.one_of(st.none(), partitions)),
            action(
                "redrive",
                pick=picks,
                to=st.one_of(st.none(), partitions),
                is_all=st.booleans(),
                for_all=st.booleans(),
            ),
        )
    )
    def look_after_messages(self, action):
        """Do something to messages from outside."""
        self.perform(action)

    @rule(
        action=st.one_of(
            action("pause_queue", is_paused=st.booleans()),
            action("delete_and_create_queue"),
        )
    )
    def look_after_queue(self, action):
        """Do something to all of the queue."""
        self.perform(action)

    def pause_queue(self, is_paused):
        self.arun(self.log.value("select skep.pause_queue($1, $2)", self.queue, is_paused))
        self.plane.is_paused = is_paused

    def change_subscription(self, group, offset_s):
        """Let a group start elsewhere when it starts again."""
        known = self.plane.groups.get(group)
        if known is None or group == QUEUE_MODE:
            return
        moment = self.log.now + timedelta(seconds=offset_s)
        query = "select skep.change_subscription($1, $2)"
        assert self.arun(self.log.value(query, group, moment)) == 1
        known.change_start(moment)

    def pause_group(self, group, is_paused):
        if group in self.plane.groups:
            id_ = self.plane.groups[group].id
            self.arun(self.log.value("select skep.pause_group($1, $2)", id_, is_paused))
            self.plane.groups[group].is_paused = is_paused

    def seek_queue(self, group, to, ago):
        if group not in self.plane.groups:
            return
        now, moment = self.log.now, self.log.now - timedelta(seconds=ago)
        next_name = ""
        while next_name is not None:
            row = self.arun(
                self.log.row(
                    "select * from skep.seek_partitions($1, $2, 1, $3, $4)",
                    self.plane.groups[group].id,
                    next_name,
                    to,
                    moment if to == "timestamp" else None,
                )
            )
            next_name = row["next_name"]
        for reader in self.plane.of_group(group).values():
            partition = reader.partition
            targets = {
                "end": partition.head,
                "start": 0,
                "timestamp": partition.last_before(moment),
            }
            reader.go_to(targets[to], now)
        if self.plane.groups[group].start_ahead(now):
            self.plane.groups[group].change_start(now)

    def seek_partition(self, group, partition, offset):
        if group not in self.plane.groups or partition not in self.plane.partitions:
            return
        reader = self.plane.readers[partition, group]
        group_id, partition_id = self.plane.groups[group].id, reader.partition.id
        query = "select * from skep.aim_seek($1, $2, 'offset', null, $3)"
        aim = self.arun(self.log.row(query, group_id, [partition_id], offset))
        unread = set(reader.unread)
        query = "select * from skep.seek_cursors($1, $2, $3)"
        self.arun(self.log.row(query, group_id, [partition_id], [aim["target"]]))
        reader.go_to(offset - 1, self.log.now)
        assert aim["skipped"] == len(unread - set(reader.unread))
        assert aim["replayed"] == len(set(reader.unread) - unread)

    def forget_group(self, group, is_kept):
        """Delete what a group did, and the group as well unless its subscription is kept."""
        if group not in self.plane.groups or group == QUEUE_MODE:
            return
        known = self.plane.groups[group]
        if not is_kept:
            assert self.arun(self.log.value("select skep.forget_group($1)", known.id))
        query = "select next_name from skep.forget_partitions($1, $2, $3, $4, 2)"
        next_name = ""
        while next_name is not None:
            next_name = self.arun(
                self.log.value(query, self.queue_id, known.id, is_kept, next_name)
            )
        readers = self.plane.of_group(group)
        self.plane.forget_group(group)
        if is_kept:
            self.plane.groups[group] = known
            for partition, reader in readers.items():
                now = self.log.now
                reader.go_to(known.first_target(reader.partition), now, known.start_ahead(now))
                self.plane.readers[partition, group] = reader

    def delete_message(self, partition, pick):
        if partition in self.plane.partitions and self.plane.partitions[partition].head:
            state = self.plane.partitions[partition]
            at = max(state.head - pick, 1)
            answer = self.arun(self.log.value("select skep.delete_message($1, $2)", state.id, at))
            assert answer == self.plane.delete_message(partition, at, self.log.now)

    def give_up_message(self, partition, pick, group):
        """Move a message to the dead letters, for one group or for all that count."""
        state = self.plane.partitions.get(partition)
        if state is None or not state.messages:
            return
        at = sorted(state.messages)[-1 - pick % len(state.messages)]
        query = "select * from skep.give_up_message($1, $2, $3, 'given up')"
        gave_up = {row[0] for row in self.arun(self.log.rows(query, state.id, at, group))}
        readers = self.plane.of_partition(partition)
        waits = {name for name, reader in readers.items() if at not in reader.finished}
        assert gave_up <= waits
        assert gave_up == ({group} & waits if group else gave_up | (waits - {QUEUE_MODE}))
        for name in gave_up:
            readers[name].lose([at], self.log.now)
        self.plane.letters |= {(name, partition, at) for name in gave_up}

    def end_backoff(self, partition, pick):
        """Let a message that failed come again at once."""
        state, now = self.plane.partitions.get(partition), self.log.now
        if state is None or not state.messages:
            return
        at = sorted(state.messages)[-1 - pick % len(state.messages)]
        query = "select group_name from skep.end_backoff($1, $2, null)"
        ended = {row[0] for row in self.arun(self.log.rows(query, state.id, at))}
        for group, reader in self.plane.of_partition(partition).items():
            is_waiting = reader.leased is None and reader.rests_until.get(at, now) > now
            assert group in ended or not is_waiting
            if group in ended:
                assert at in reader.failures
                reader.rests_until, reader.free_at = {}, now

    def clear(self, partition):
        """Drop all messages of the queue or of a partition, a segment at a time."""
        named = [partition] if partition else self.plane.partitions
        partitions = [name for name in named if name in self.plane.partitions]
        is_held = self.plane.is_held(partitions, self.log.now)
        next_from, upto, messages = partition or "", None, 0
        while next_from is not None:
            row = self.arun(
                self.log.row(
                    "select * from skep.clear_partitions($1, $2, $3, $4, 2, 2)",
                    self.queue_id,
                    next_from,
                    upto,
                    partition is not None,
                )
            )
            assert row["is_held"] == is_held
            next_from, upto = row["next_from"], row["next_upto"]
            messages += row["messages"]
        cleared = [self.plane.clear(name, self.log.now) for name in partitions if not is_held]
        assert messages == sum(cleared)

    def redrive(self, pick, to, is_all, for_all):
        """Push what died again, where it was or elsewhere, for its group or for all."""
        letters = sorted(self.arun(self._letters()))
        if not letters:
            return
        chosen = letters if is_all else [letters[pick % len(letters)]]
        if to:
            self.arun(self._provision(to))
        goals = {id_: to or partition for id_, (_, partition, _) in chosen}
        moves = {id_: self.plane.partitions[goal].id for id_, goal in goals.items()}
        redriven = self.arun(redrive(self.log, moves, for_all=for_all))
        assert {row.result for row in redriven.values()} == {"moved"}
        for goal in self.plane.by_id(set(goals.values())):
            ids = sorted(id_ for id_ in goals if goals[id_] == goal)
            self.plane.push(goal, [f"dlq:{id_}" for id_ in ids], self.log.now)
            head = self.plane.partitions[goal].head
            offsets = [redriven[id_].message_offset for id_ in ids]
            assert offsets == list(range(head - len(ids) + 1, head + 1))
            for group, reader in ({} if for_all else self.plane.of_partition(goal)).items():
                died = {id_: letter[0] for id_, letter in chosen}
                foreign = [at for id_, at in zip(ids, offsets, strict=True) if died[id_] != group]
                if foreign:
                    reader.lose(foreign, self.log.now)
        self.plane.letters -= {letter for _, letter in chosen}

    def delete_and_create_queue(self):
        """Delete the queue; the next client finds an empty one of the same name.

        A reader outside that is behind keeps the queue.
        """
        if self.plane.is_held(self.plane.partitions, self.log.now):
            with pytest.raises(asyncpg.PostgresError) as refused:
                self.arun(self._remove_queue())
            assert refused.value.sqlstate == "SK411"
            return
        self.arun(self._delete_queue())
        self.plane = Plane()
        self.positions = []  # they count the segments of the queue that is gone
        self.arun(self._create_queue())

    async def _remove_queue(self):
        return await self.log.value("select skep.remove_queue($1)", self.queue)

    async def _delete_queue(self):
        assert await self._remove_queue() == self.queue_id
        while await self.log.value("select skep.sweep_removed_queue($1, 10)", self.queue_id):
            pass
        assert await self.log.value(LEFT_BEHIND, self.queue_id) == 0

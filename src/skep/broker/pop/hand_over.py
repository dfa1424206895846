"""Hand what a push stores to polls that wait, within the push's own call.

Where consumers keep up, a push would make a partition ready, and wake a poll that claims it with
a call of its own. Instead the push names the polls that wait; its call claims for them what it
stores, and the messages need not be read. Only small pushes do: under load polls gather more
messages by a claim of their own, and each answer costs as much as a claim. And only polls that
acknowledge later: a claim that is acknowledged on delivery could not be given back for certain.

A push may have to wait for a lock, and its polls with it. They go back to the others after a moment
(`PATIENCE_S`); what the call claims for them then is given back.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

import msgspec

from skep.broker.directory import Partition
from skep.broker.pop.accept import Poll, Pop
from skep.broker.pop.batches import TakenSegment
from skep.broker.pop.execute import PopExecutor
from skep.broker.pop.lease_memory import KEY_BYTES
from skep.broker.pop.long_poll import LongPolls
from skep.db.access.errors import NotExecuted
from skep.model.errors import SkepError, Unavailable

PARTITIONS_MAX: Final = 16
"""Pushes into more partitions at once wake polls."""

BYTES_MAX: Final = 64 * 1024
"""Larger ones of a partition are left to a poll's own claim, which is bounded."""

PATIENCE_S: Final = 0.1
"""How long polls wait for the push that they were taken for."""


class Claim(msgspec.Struct, gc=False):
    """What a push claimed in one partition: the messages (taken_from, taken_to]."""

    taken_from: int
    taken_to: int
    is_individual: bool
    is_only: bool
    """No other group reads the partition."""


class Offer:
    """The polls that get what one call stores, by partition. At its end the others park again."""

    def __init__(
        self, pop: Pop, long_polls: LongPolls, executor: PopExecutor, polls: Mapping[int, Poll]
    ) -> None:
        self._pop: Final = pop
        self._long_polls: Final = long_polls
        self._executor: Final = executor
        self._offered: Final = {
            partition_id: (poll, poll.group, poll.lease_id)
            for partition_id, poll in polls.items()
            if poll.group is not None
        }
        self._is_recalled = False

    def columns(self, partition_ids: Sequence[int]) -> tuple[Sequence[object], ...]:
        """Return group, lease, batch and seconds of lease for each partition."""
        rows = [
            (None, None, None, None)
            if offered is None
            else (
                offered[1].group_id,
                offered[2],
                offered[0].options.batch,
                offered[0].options.lease_s,
            )
            for offered in map(self._offered.get, partition_ids)
        ]
        return tuple(zip(*rows, strict=True))

    def __enter__(self) -> Self:
        for poll, _, _ in self._offered.values():
            self._pop.watch(poll)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._recall)
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # An error that is not one of ours may come after the commit.
        is_unknown = error is not None and (
            not isinstance(error, SkepError)
            or (isinstance(error, Unavailable) and not isinstance(error, NotExecuted))
        )
        if is_unknown:
            for _, group, lease_id in self._offered.values():
                self._pop.undo_claim(group, lease_id)
        if not self._is_recalled:
            self._park_again()

    def give(
        self,
        partition: Partition,
        claim: Claim,
        envelopes: Sequence[bytes],
        keys: bytes,
        created_at: datetime,
    ) -> None:
        """Answer a poll with what was stored and claimed for it."""
        poll, group, lease_id = self._offered.pop(partition.partition_id)
        if self._is_recalled:
            self._pop.give_back(group, lease_id, {partition.partition_id})
            return
        count = claim.taken_to - claim.taken_from
        segment = TakenSegment(
            poll=1,
            partition_id=partition.partition_id,
            partition_name=partition.key[1],
            delivery=1,
            created_at=created_at,
            low=claim.taken_from + 1,
            keys=keys[: count * KEY_BYTES],
            envelopes=envelopes[:count],
            passed_over=None,
            is_individual=claim.is_individual,
            counts=None,
        )
        self._executor.count_call([[segment]])
        self._executor.serve(group, poll, [segment])

    def _recall(self) -> None:
        self._is_recalled = True
        self._park_again()

    def _park_again(self) -> None:
        for poll, _, _ in self._offered.values():
            if not poll.is_settled:
                poll.lease_id = uuid4()  # the other one may be used up
                self._long_polls.park(poll)


@dataclass(slots=True, eq=False, frozen=True)
class HandOvers:
    """Offers pushes the polls that wait."""

    pop: Pop
    long_polls: LongPolls
    executor: PopExecutor

    def are_waited_for(self, partition_count: int) -> bool:
        """Tell whether it may be that polls wait for pushes into so many partitions."""
        return (
            partition_count <= PARTITIONS_MAX
            and len(self.long_polls) > 0
            and not self.executor.is_paused()
        )

    def offer(self, pushes: Sequence[tuple[Partition, Sequence[bytes]]]) -> Offer | None:
        """Take polls that wait for what is about to be pushed; None if none do."""
        by_queue: dict[int, list[int]] = {}
        for partition, envelopes in pushes:
            if sum(map(len, envelopes)) <= BYTES_MAX:
                by_queue.setdefault(partition.queue_id, []).append(partition.partition_id)
        polls: dict[int, Poll] = {}
        for queue_id, partition_ids in by_queue.items():
            taken = self.long_polls.take_for(queue_id, len(partition_ids))
            polls.update(zip(partition_ids, taken, strict=False))
        return Offer(self.pop, self.long_polls, self.executor, polls) if polls else None

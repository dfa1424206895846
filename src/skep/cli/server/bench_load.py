"""The load of `skep bench`: producers and consumers of one queue, for some time.

It needs nothing beyond Queen's wire: configure, push, pop, ack and delete. Producers stop when the
time is up; consumers go on until everything is consumed, or that takes too long.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from skep.cli.server.bench_figures import Tally
from skep.client import AsyncClient, AsyncMessage

PROGRESS_S: Final = 0.25
POLL_S: Final = 1.0
DRAIN_S: Final = 30.0
"""The longest time for what was pushed to be consumed, once nothing more is pushed."""
LEASE_S: Final = 60

OnProgress: TypeAlias = Callable[[Tally], None]


class _Stamp(msgspec.Struct):
    """The part of a payload that says when it was pushed, in nanoseconds since 1970."""

    at: int


_decode_stamp: Final = msgspec.json.Decoder(_Stamp).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do."""

    queue: str
    is_own_queue: bool
    """Whether the queue is made for this, and deleted afterwards."""
    producers: int
    consumers: int
    batch: int
    partitions: int
    payload_bytes: int
    duration_s: float


class Load:
    """One load test."""

    def __init__(self, client: AsyncClient, plan: Plan) -> None:
        self._client: Final = client
        self._plan: Final = plan
        self._numbers: Final = count()
        self._padding: Final = "x" * max(plan.payload_bytes - len(_payload("")), 0)
        self._drained_by: float | None = None
        """When consumers stop at last; None while there is more to come."""
        self._tally: Final = Tally()

    async def run(self, on_progress: OnProgress) -> Tally:
        """Do it, and tell now and then how it comes along.

        Raises:
            SkepError: The broker refused something, or cannot be reached.
        """
        if self._plan.is_own_queue:
            body = {"queue": self._plan.queue, "options": {"leaseTime": LEASE_S}}
            await self._client.request("POST", "/api/v1/configure", body)
        try:
            await self._run_all(on_progress)
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        finally:
            if self._plan.is_own_queue:
                path = f"/api/v1/resources/queues/{quote(self._plan.queue, safe='')}"
                await self._client.request("DELETE", path)
        return self._tally

    async def _run_all(self, on_progress: OnProgress) -> None:
        cpu_before = time.process_time()
        self._tally.began_at = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(self._report(on_progress))
            consuming = [group.create_task(self._consume()) for _ in range(self._plan.consumers)]
            pushing = [group.create_task(self._produce()) for _ in range(self._plan.producers)]
            # Somebody may only want to consume: that, too, ends when the time is up.
            pushing.append(group.create_task(asyncio.sleep(self._plan.duration_s)))
            await asyncio.gather(*pushing)
            self._drained_by = time.perf_counter() + DRAIN_S
            await asyncio.gather(*consuming)
            reporting.cancel()
        self._tally.cpu_s = time.process_time() - cpu_before

    async def _produce(self) -> None:
        plan, pushed = self._plan, self._tally.pushed
        ends_at = self._tally.began_at + plan.duration_s
        while (began := time.perf_counter()) < ends_at:
            payload = msgspec.Raw(_payload(self._padding).encode())
            partition = f"p{next(self._numbers) % plan.partitions}"
            results = await self._client.push_many(
                plan.queue, [payload] * plan.batch, partition=partition
            )
            if results.has_failures:
                results.raise_for_failures()
            pushed.add(plan.batch, began, time.perf_counter())

    async def _consume(self) -> None:
        plan = self._plan
        while not self._is_consumed():
            messages = await self._client.pop(
                plan.queue, batch=plan.batch, wait_s=POLL_S, lease_s=LEASE_S
            )
            if not messages:
                continue
            self._note_delivery(messages)
            began = time.perf_counter()
            await self._client.ack(messages)
            self._tally.acked.add(len(messages), began, time.perf_counter())

    def _is_consumed(self) -> bool:
        if self._drained_by is None:
            return False
        return self._tally.left <= 0 or time.perf_counter() > self._drained_by

    def _note_delivery(self, messages: list[AsyncMessage]) -> None:
        now = time.time_ns()
        for message in messages:
            try:
                pushed_at = _decode_stamp(message.raw).at
            except msgspec.MsgspecError:
                continue  # somebody else's message in a queue that was named
            self._tally.delivery.add((now - pushed_at) / 1e9)

    async def _report(self, on_progress: OnProgress) -> None:
        while True:
            on_progress(self._tally)
            await asyncio.sleep(PROGRESS_S)


def _payload(padding: str) -> str:
    return f'{{"at":{time.time_ns()},"padding":"{padding}"}}'

"""The load of `skep bench`: producers and consumers of one queue, and what they measure.

It uses Queen's wire only: configure, push, pop, ack and delete. Producers stop when the time is up;
consumers continue until everything is consumed, or that takes too long. Latencies are counted in
steps of 2 %, so that memory does not grow with the length of the test.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import ceil, exp, log
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from skep.client import AsyncClient, AsyncMessage

PROGRESS_S: Final = 0.25
POLL_S: Final = 1.0
DRAIN_S: Final = 30.0
"""How long consumers may take after the last push."""
LEASE_S: Final = 60

_STEP: Final = log(1.02)
_SHORTEST_S: Final = 1e-6

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class Latencies:
    """A histogram of durations."""

    def __init__(self) -> None:
        self._counts: Final[Counter[int]] = Counter()
        self.longest_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration."""
        self._counts[round(log(max(seconds, _SHORTEST_S)) / _STEP)] += times
        self.longest_s = max(self.longest_s, seconds)

    def quantile(self, share: float) -> float | None:
        """Return a quantile, accurate to 1 %; None without durations."""
        wanted = ceil(share * self._counts.total())
        seen = 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= wanted:
                return min(exp(step * _STEP), self.longest_s)
        return None

    def in_milliseconds(self) -> dict[str, float | None]:
        """Return the percentiles and the maximum."""
        shown: dict[str, float | None] = {
            name: _milliseconds(self.quantile(share)) for name, share in SHARES.items()
        }
        return {**shown, "max": _milliseconds(self.longest_s) if shown["p50"] else None}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


@dataclass(slots=True)
class Flow:
    """The requests and messages of one direction."""

    messages: int = 0
    requests: int = 0
    ended_at: float = 0.0
    """When the last request was answered, by the test's clock."""
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, messages: int, began: float, now: float) -> None:
        """Count a request."""
        self.messages += messages
        self.requests += 1
        self.ended_at = now
        self.latencies.add(now - began)


@dataclass(slots=True)
class Tally:
    """The counts of a load test so far."""

    began_at: float = 0.0
    pushed: Flow = field(default_factory=Flow)
    acked: Flow = field(default_factory=Flow)
    delivery: Latencies = field(default_factory=Latencies)
    """From push to delivery, for each message."""
    cpu_s: float = 0.0
    """CPU time of this process."""

    @property
    def left(self) -> int:
        """Messages pushed and not consumed."""
        return self.pushed.messages - self.acked.messages

    def report(self, payload_bytes: int) -> dict[str, Any]:
        """Return the result."""
        seconds = max(self.pushed.ended_at, self.acked.ended_at) - self.began_at
        return {
            "seconds": round(seconds, 2),
            "push": self._flow(self.pushed, payload_bytes),
            "consume": self._flow(self.acked, payload_bytes),
            "latencyMs": {
                "push": self.pushed.latencies.in_milliseconds(),
                "ack": self.acked.latencies.in_milliseconds(),
                "delivery": self.delivery.in_milliseconds(),
            },
            "left": self.left,
            "clientCpuShare": round(self.cpu_s / seconds, 3) if seconds > 0 else None,
        }

    def _flow(self, flow: Flow, payload_bytes: int) -> dict[str, Any]:
        seconds = flow.ended_at - self.began_at
        rate = flow.messages / seconds if flow.requests else 0.0
        return {
            "messages": flow.messages,
            "requests": flow.requests,
            "messagesPerSecond": round(rate, 1),
            "megabytesPerSecond": round(rate * payload_bytes / 1e6, 3),
        }


OnProgress: TypeAlias = Callable[[Tally], None]


class _Stamp(msgspec.Struct):
    """When a payload was pushed, in nanoseconds since 1970."""

    at: int


_decode_stamp: Final = msgspec.json.Decoder(_Stamp).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a load test."""

    queue: str
    is_own_queue: bool
    """Whether the queue is created for the test, and deleted afterwards."""
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
        """When consumers give up; None while producers run."""
        self._tally: Final = Tally()

    async def run(self, on_progress: OnProgress) -> Tally:
        """Run the test, and report progress regularly."""
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
            # Without producers, the test still ends when the time is up.
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
                continue  # not one of this test, in a queue given with --queue
            self._tally.delivery.add((now - pushed_at) / 1e9)

    async def _report(self, on_progress: OnProgress) -> None:
        while True:
            on_progress(self._tally)
            await asyncio.sleep(PROGRESS_S)


def _payload(padding: str) -> str:
    return f'{{"at":{time.time_ns()},"padding":"{padding}"}}'

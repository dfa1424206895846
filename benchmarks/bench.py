"""What scenarios are made of: fill a queue, run roles, measure a window, work out its figures.

A window is opened after a warm-up, while the load is running, and closed before it stops: neither
start nor end is in the figures. Where a backlog is popped, the window closes before the backlog is
exhausted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.errors import ScenarioFailed
from benchmarks.load import Load, Target, running
from benchmarks.meter import Meter, Usage
from benchmarks.plan import PopRole, PushRole, Role, Snapshot
from benchmarks.stats import per, percentile

_FILL_S_MAX = 300.0
_DRAIN_S_MAX = 60.0
_LOOK_EVERY_S = 0.02
# Of a backlog, the first part warms up and the last is left: it would be popped by fewer and
# fewer connections.
_BACKLOG_WARMUP_SHARE = 0.15
_BACKLOG_MEASURED_SHARE = 0.95
_BACKLOG_WARMUP_S = 0.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much load, and for how long."""

    seconds: float = 5.0
    warmup_s: float = 1.0
    connections: int = 64
    payload_bytes: int = 100
    generators: int = 1
    deep_backlog: int = 400_000
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Window:
    """What happened between the opening and the closing of a measured window."""

    usage: Usage
    opened: Snapshot
    closed: Snapshot
    errors: dict[str, int]
    examples: list[str]

    def messages(self, role: str) -> int:
        return self.closed.roles[role].messages - self.opened.roles[role].messages

    def requests(self, role: str) -> int:
        return self.closed.roles[role].requests - self.opened.roles[role].requests

    def lag(self) -> int:
        """Return how many messages were stored and not yet delivered when the window closed."""
        return self.closed.roles["push"].messages - self.closed.roles["consume"].messages

    def latency_ms(self, role: str, percent: float) -> float | None:
        samples_us = sorted(self.closed.latencies_us.get(role, []))
        return per(percentile(samples_us, percent), 1_000)


@dataclass(slots=True)
class Outcome:
    """One run of one scenario."""

    figures: dict[str, float | None] = field(default_factory=dict[str, float | None])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    examples: list[str] = field(default_factory=list[str])


class Bench:
    """What scenarios are written with: fill a queue, run roles, measure a window."""

    def __init__(
        self,
        target: Target,
        meter: Meter,
        sizes: Sizes,
        *,
        run_id: str,
        say: Callable[[str], None],
    ) -> None:
        self.target = target
        self.meter = meter
        self.sizes = sizes
        self.say = say
        self._run_id = run_id
        self._uses = 0

    def new_queue(self, scenario: str) -> str:
        """Return a queue name nobody used before, in this run or in an earlier one."""
        self._uses += 1
        return f"bench-{scenario}-{self._run_id}-{self._uses}"

    def pusher(
        self,
        queue: str,
        *,
        partitions: int,
        items: int,
        connections: int | None = None,
        run_length: int = 1,
        is_shuffled: bool = True,
        is_stamped: bool = False,
        rate: float | None = None,
        request_limit: int | None = None,
    ) -> PushRole:
        """Return a push role; each has its own seed, hence its own payloads and transaction ids."""
        self._uses += 1
        return PushRole(
            name="push",
            connections=connections or self.sizes.connections,
            queue=queue,
            partitions=partitions,
            items=items,
            payload_bytes=self.sizes.payload_bytes,
            seed=self.sizes.seed + 1_000_000_007 * self._uses,
            run_length=run_length,
            is_shuffled=is_shuffled,
            is_stamped=is_stamped,
            rate=rate,
            request_limit=request_limit,
        )

    async def fill(self, role: PushRole) -> None:
        """Push until the request limit of the role is reached."""
        assert role.request_limit is not None
        self.say(f"loading {role.request_limit * role.items:,} messages")
        async with running(self.target, [role]) as load:
            await _await_condition(load, lambda seen: seen.is_done, _FILL_S_MAX)
            _raise_on_errors(await load.stop())

    async def drain(self, role: PopRole, messages: int) -> None:
        """Pop until that many messages have come."""
        self.say(f"draining {messages:,} messages")
        async with running(self.target, [role]) as load:
            await _await_condition(
                load, lambda seen: seen.roles[role.name].messages >= messages, _DRAIN_S_MAX
            )
            _raise_on_errors(await load.stop())

    async def measure(
        self, roles: Sequence[Role], *, warmup_s: float | None = None, seconds: float | None = None
    ) -> Window:
        """Run the roles and measure a window of fixed length."""
        async with running(self.target, roles, self.sizes.generators) as load:
            self.say("warming up")
            await asyncio.sleep(self.sizes.warmup_s if warmup_s is None else warmup_s)
            return await self._window(load, asyncio.sleep(seconds or self.sizes.seconds))

    async def measure_backlog(self, role: PopRole, backlog: int) -> Window:
        """Pop a backlog and measure a window that ends before the backlog does."""
        async with running(self.target, [role], self.sizes.generators) as load:
            self.say("warming up")
            await _hold(load, _BACKLOG_WARMUP_S, backlog * _BACKLOG_WARMUP_SHARE)
            held = _hold(load, self.sizes.seconds, backlog * _BACKLOG_MEASURED_SHARE)
            window = await self._window(load, held)
        if window.closed.roles[role.name].messages >= backlog:
            raise ScenarioFailed(f"the backlog of {backlog:,} messages was too small to measure on")
        return window

    async def _window(self, load: Load, held: Awaitable[None]) -> Window:
        self.say("measuring")
        before, opened = await self.meter.read(), await load.open_window()
        await held
        closed, after = await load.close_window(), await self.meter.read()
        last = await load.stop()
        return Window(Usage.between(before, after), opened, closed, last.errors, last.examples)


async def _hold(load: Load, seconds: float, messages_max: float) -> None:
    """Wait until the time is over or that many messages have come since the load began."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        await asyncio.sleep(_LOOK_EVERY_S)
        counts = (await load.snapshot()).roles.values()
        if sum(count.messages for count in counts) >= messages_max:
            return


async def _await_condition(
    load: Load, condition: Callable[[Snapshot], bool], within_s: float
) -> None:
    until_s = time.monotonic() + within_s
    while not condition(snapshot := await load.snapshot()):
        if snapshot.errors:
            _raise_on_errors(snapshot)
        if time.monotonic() > until_s:
            raise ScenarioFailed(f"setup took longer than {within_s:g} s: {snapshot.roles}")
        await asyncio.sleep(_LOOK_EVERY_S)


def _raise_on_errors(snapshot: Snapshot) -> None:
    if snapshot.errors:
        raise ScenarioFailed(f"setup failed: {snapshot.errors}; {'; '.join(snapshot.examples)}")


def outcome_of(window: Window, role: str) -> Outcome:
    """Return the common figures, per message that `role` stored or had delivered."""
    usage, messages = window.usage, window.messages(role)
    seconds = window.closed.at_s - window.opened.at_s
    generator_cpu_s = window.closed.cpu_s - window.opened.cpu_s
    return Outcome(
        figures={
            "messages_per_s": messages / seconds,
            "cpu_us_per_message": per(_microseconds(usage.cpu_s), messages),
            "broker_us_per_message": per(_microseconds(usage.broker_cpu_s), messages),
            "postgres_us_per_message": per(_microseconds(usage.postgres_cpu_s), messages),
            "p50_ms": window.latency_ms(role, 50),
            "p99_ms": window.latency_ms(role, 99),
            "wal_bytes_per_message": per(usage.wal_bytes, messages),
            "commits_per_message": per(usage.commits, messages),
            "broker_rss_mib": per(usage.broker_rss_bytes, 1 << 20),
            "largest_rss_mib": per(usage.largest_rss_bytes, 1 << 20),
            "generator_us_per_message": per(_microseconds(generator_cpu_s), messages),
            "generator_core_percent": 100 * generator_cpu_s / seconds,
            "window_s": seconds,
            "messages": messages,
        },
        errors=window.errors,
        examples=window.examples,
    )


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6

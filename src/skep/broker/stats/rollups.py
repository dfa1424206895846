"""Write what this process counts to the database, and maintain what all processes wrote.

`Reporter` adds what is new every few seconds: one call, whose size follows the queues that were
used since. What cannot be written is kept for the next time. The duties, which the leader runs, sum
up minutes to hours, sample the lag of groups, and purge.

Times are those of the database's clock, as far as this process knows the difference to its own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from skep.broker.cluster.housekeeping import CallDuty, Duty
from skep.broker.cluster.leadership import Term
from skep.broker.groups.condition import ABSENT_S
from skep.broker.polling_loop import end_task
from skep.broker.stats import samples
from skep.db.access.functions import Functions, statement_of
from skep.db.access.slots import Caller
from skep.model.errors import SkepError
from skep.telemetry.group_activity import GroupKey
from skep.telemetry.meters import COUNTERS, OTHER_QUEUES, Meters, QueueDelta

_log = logging.getLogger(__name__)


MINUTES_KEPT: Final = timedelta(hours=48)
"""How long rollups by minute are kept."""
SETTLE_S: Final = 120
"""How long to wait after the end of an hour before summing it up; reports are late by seconds."""
ROLL_UP_INTERVAL_S: Final = 60.0
PURGE_INTERVAL_S: Final = 300.0
PURGE_BATCH: Final = 5_000
GROUPS_SAMPLED: Final = 200
PARTITIONS_SAMPLED: Final = 2_000
LAST_REPORT_S: Final = 1.0
"""How long the last report may hold up the end of the process."""

_encode = msgspec.json.encode


class WorkerIdentity(NamedTuple):
    """Which process of the installation this is."""

    hostname: str
    port: int
    number: int
    pid: int


@dataclass(slots=True, eq=False)
class Reporter:
    """Adds what this process counts to the rollups, for as long as it runs."""

    sql: Functions
    meters: Meters
    identity: WorkerIdentity
    read_gauges: Callable[[], Mapping[str, Iterable[float]]]
    read_parked: Callable[[], Counter[GroupKey]]
    """Counts the polls that wait, by queue and group."""
    interval_s: float
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _ahead: timedelta = timedelta()
    """By how much the database's clock is ahead of this process's."""
    _worker_id: int | None = None
    _minute: datetime | None = None
    _sample: samples.Sample = samples.EMPTY
    _calls_told: tuple[int, int] = (0, 0)
    _reporting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to report."""
        self._reporting = asyncio.get_running_loop().create_task(self._report_repeatedly())

    async def stop(self) -> None:
        """Report a last time and stop."""
        if self._reporting is None:
            return
        await end_task(self._reporting)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                await self.report()

    async def report(self) -> None:
        """Write what is new; what cannot be written is kept."""
        deltas, parked = self.meters.queues.tell(), self.read_parked()
        news = self.meters.groups.tell(parked, now=asyncio.get_running_loop().time())
        try:
            await self._record(deltas, parked)
            deltas = []
            if news:
                spelled = _encode([each._asdict() for each in news]).decode()
                await self.sql.rows("record_group_activity", spelled, ABSENT_S)
        except BaseException as error:
            self.meters.queues.take_back(deltas)
            self.meters.groups.take_back(news)
            if not isinstance(error, SkepError):
                raise
            _log.debug("metrics could not be recorded: %s", error)

    async def _report_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self.interval_s)
            await self.report()

    async def _record(self, deltas: Sequence[QueueDelta], parked: Counter[GroupKey]) -> None:
        worker_id = self._worker_id
        if worker_id is None:
            worker_id = self._worker_id = await self._register()
        minute = (self.now() + self._ahead).replace(second=0, microsecond=0)
        so_far = self._sample if minute == self._minute else samples.EMPTY
        calls = _calls(self.meters)
        sample = so_far.merge(self._observe(deltas, calls))
        parked_by_queue: Counter[str] = Counter()
        for (queue, _), polls in parked.items():
            parked_by_queue[queue] += polls
        recorded_at = await self.sql.value(
            "record_metrics",
            worker_id,
            minute,
            samples.encode_sample(sample).decode(),
            _encode([_row(delta) for delta in deltas if delta.queue != OTHER_QUEUES]).decode(),
            _encode(parked_by_queue).decode(),
        )
        if recorded_at is None:
            self._worker_id = None  # purged after a long silence
            self.meters.queues.take_back(deltas)
            return
        self._ahead = recorded_at - self.now()
        self._minute, self._sample, self._calls_told = minute, sample, calls

    async def _register(self) -> int:
        worker_id, registered_at = await self.sql.row("register_worker", *self.identity)
        self._ahead = registered_at - self.now()
        return worker_id

    def _observe(self, deltas: Sequence[QueueDelta], calls: tuple[int, int]) -> samples.Sample:
        counters: Counter[str] = Counter()
        for delta in deltas:
            for name, count in zip(COUNTERS, delta.counts, strict=True):
                counters[name] += count
            counters.update(dict(zip(samples.LAG_COUNTERS, delta.lag_counts, strict=True)))
        counters["calls"] = calls[0] - self._calls_told[0]
        counters["db_errors"] = calls[1] - self._calls_told[1]
        gauges = dict(self.read_gauges())
        gauges["lag_ms_max"] = [delta.lag_ms_max for delta in deltas if any(delta.lag_counts)]
        return samples.observe(counters, gauges)


def _row(delta: QueueDelta) -> dict[str, Any]:
    return {
        "queue": delta.queue,
        **dict(zip(COUNTERS, delta.counts, strict=True)),
        "lag_ms_max": delta.lag_ms_max,
        "lag_counts": delta.lag_counts,
    }


def _calls(meters: Meters) -> tuple[int, int]:
    calls = meters.calls.values()
    return sum(call.durations.count for call in calls), sum(call.failures for call in calls)


class RollUpDuty:
    """Sums up the minutes of hours that are over."""

    def __init__(self, caller: Caller, term: Term) -> None:
        self.name: Final = "roll-up of metrics"
        self.interval_s: Final = ROLL_UP_INTERVAL_S
        self._sql: Final = Functions(caller)
        self._term: Final = term

    async def run(self) -> bool:
        """Sum up one hour of queues and of workers."""
        hour = await self._sql.value("roll_up_queues", *self._term, SETTLE_S)
        return await self._roll_up_workers() or hour is not None

    async def _roll_up_workers(self) -> bool:
        rows = await self._sql.rows("unrolled_samples", SETTLE_S)
        if not rows:
            return False
        merged = {
            worker_id: samples.merge_samples(
                samples.decode_sample(row["sample"]) for row in its_rows
            )
            for worker_id, its_rows in groupby(rows, key=lambda row: row["worker_id"])
        }
        await self._sql.rows(
            "record_worker_hour",
            *self._term,
            rows[0]["hour"],
            list(merged),
            [samples.encode_sample(sample).decode() for sample in merged.values()],
        )
        return True


def lag_sampling(caller: Caller, term: Term) -> Duty:
    """Return the duty that samples the lag of groups of queues in use."""
    sample, arguments = (
        statement_of("sample_groups", 4),
        (*term, GROUPS_SAMPLED, PARTITIONS_SAMPLED),
    )
    return CallDuty(
        "sampling of lag", ROLL_UP_INTERVAL_S, caller, sample, arguments, again_from=inf
    )


def metrics_purge(caller: Caller, term: Term, *, keep: timedelta) -> Duty:
    """Return the duty that deletes rollups that were kept long enough, a batch of each kind."""
    kept_s = (int(MINUTES_KEPT.total_seconds()), int(keep.total_seconds()))
    return CallDuty(
        "purge of metrics",
        PURGE_INTERVAL_S,
        caller,
        statement_of("purge_metrics", 5),
        (*term, *kept_s, PURGE_BATCH),
        again_from=PURGE_BATCH,
    )

"""Start chains by the clock: cron expressions in a time zone.

`plan` decides (pure) which ticks of a schedule that is due are run and when it is due next;
`Scheduler` carries it out. Any number of processes may run it: a schedule moves on from a tick
once, in the transaction that starts the tick's chain.

When ticks were missed because nothing ran: `skip` lets them pass, `once` starts one chain for all
of them, `all` starts one for each. A tick that is at most a minute late was not missed.

An application declares its schedules, all of them whenever a worker of it starts: what it declares
no more ends. An operator pauses a schedule, and no declaration resumes it.
"""

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.jobs.client.inspection import members_of
from skep.jobs.declare.declaration import Job
from skep.jobs.errors import ScheduleNotFound
from skep.jobs.identifiers import new_id
from skep.model.errors import BadRequest

_log = logging.getLogger(__name__)

Missed = Literal["skip", "once", "all"]
I = TypeVar("I")  # noqa: E741 -- input, as in Job[I, O]

LATE: Final = timedelta(minutes=1)
TICKS_MAX: Final = 100
"""Ticks of one schedule that one run catches up with; the rest wait for the next run."""
DUE_MAX: Final = 100


@dataclass(slots=True, eq=False)
class Schedule(Generic[I]):
    """A job that is started by the clock.

    Attributes:
        name: unique; putting a schedule of the same name changes it.
        job: what to start.
        value: its input.
        cron: minute, hour, day of month, month and day of week; with six fields seconds come first.
        timezone: whose clock; an IANA name.
        missed: what to do with ticks that no process was there to run.
        is_enabled: whether it runs.
    """

    name: str
    job: Job[I, Any]
    value: I
    _: KW_ONLY
    cron: str
    timezone: str = "UTC"
    missed: Missed = "once"
    is_enabled: bool = True
    input: str = field(init=False)
    """The value as JSON."""

    def __post_init__(self) -> None:
        self.input = self.job.input.encode(self.value)
        next_tick(self.cron, self.timezone, datetime(2000, 1, 1, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Tick:
    """One step of a schedule: from this time to the next, with or without a chain."""

    at: datetime
    next_at: datetime
    is_run: bool


def next_tick(cron: str, timezone: str, after: datetime) -> datetime:
    """Return the first time after `after` that the expression names.

    An hour that the clock skips in spring runs at its end; one that comes twice in autumn runs
    once.

    Raises:
        BadRequest: the expression or the time zone is invalid, or names no time.
    """
    try:
        zone = ZoneInfo(timezone)
        return next(CronSim(cron, after.astimezone(zone))).astimezone(UTC)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadRequest(f"invalid time zone {timezone!r}: use an IANA name") from error
    except CronSimError as error:
        raise BadRequest(f"invalid cron expression {cron!r}: {error}") from error
    except StopIteration:
        raise BadRequest(f"the cron expression {cron!r} names no time") from None


def plan(
    *, cron: str, timezone: str, missed: Missed, next_at: datetime, now: datetime
) -> list[Tick]:
    """Return the steps of a schedule that is due, in order; none if it is not due."""
    ticks: list[Tick] = []
    while next_at <= now and len(ticks) < TICKS_MAX:
        is_missed = now - next_at > LATE
        if is_missed and missed != "all":
            tick = Tick(next_at, next_tick(cron, timezone, now), is_run=missed == "once")
        else:
            tick = Tick(next_at, next_tick(cron, timezone, next_at), is_run=True)
        ticks.append(tick)
        next_at = tick.next_at
    return ticks


class ScheduleRow(msgspec.Struct, frozen=True, rename="camel"):
    """A schedule as it is stored; `now` is when it was read, by the database's clock.

    `is_enabled`: it runs. Otherwise it is declared so, an operator paused it (`is_paused`), or its
    `owner` declares it no more (`removed_at`). Without an owner it was put by hand.
    """

    name: str
    type: str
    input: msgspec.Raw
    cron: str
    timezone: str
    missed: Missed
    priority: int
    max_attempts: int
    is_enabled: bool
    next_at: datetime
    last_at: datetime | None
    last_chain_id: UUID | None
    is_paused: bool
    owner: str | None
    removed_at: datetime | None
    now: datetime


class Scheduler:
    """Keeps schedules and runs those that are due."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def declare(self, owner: str, schedules: Sequence[Schedule[Any]]) -> None:
        """Put the schedules of an application, and end those that it does not declare any more."""
        for schedule in schedules:
            await self._put(schedule, owner)
        names = [schedule.name for schedule in schedules]
        for (name,) in await self._sql.rows("job_schedule_retire", owner, names):
            _log.info("Ended schedule %s: %s no longer declares it", name, owner)

    async def put(self, schedule: Schedule[Any]) -> None:
        """Make or change a schedule by hand. With unchanged times it keeps its place.

        One that is not enabled is paused.
        """
        await self._put(schedule, None)

    async def pause(self, name: str) -> None:
        """Stop a schedule until it is resumed; ScheduleNotFound if there is none."""
        await self._set_paused(name, is_paused=True)

    async def resume(self, name: str) -> None:
        """Let a paused schedule go on with its next tick; ScheduleNotFound if there is none."""
        await self._set_paused(name, is_paused=False)

    async def _set_paused(self, name: str, *, is_paused: bool) -> None:
        row = await self.find(name)
        next_at = next_tick(row.cron, row.timezone, row.now)
        await self._sql.rows("job_schedule_pause", name, is_paused, next_at)

    async def _put(self, schedule: Schedule[Any], owner: str | None) -> None:
        now = await self._sql.value("now")
        await self._sql.rows(
            "job_schedule_put",
            schedule.name,
            schedule.job.name,
            schedule.input,
            schedule.cron,
            schedule.timezone,
            schedule.missed,
            schedule.job.priority,
            schedule.job.retry.max_attempts,
            schedule.is_enabled,
            next_tick(schedule.cron, schedule.timezone, now),
            owner,
        )

    async def delete(self, name: str) -> bool:
        """Forget a schedule; return whether there was one."""
        return bool(await self._sql.value("job_schedule_delete", name))

    async def find(self, name: str) -> ScheduleRow:
        """Return a schedule; ScheduleNotFound if there is none."""
        for row in await self._read(is_due=False, name=name, limit=1):
            return row
        raise ScheduleNotFound(f"there is no schedule {name!r}")

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[ScheduleRow]:
        """Return schedules in the order of their names."""
        return await self._read(is_due=False, after=after, limit=limit)

    async def run_due(self) -> list[UUID]:
        """Start the chains of ticks that are due; return their ids."""
        started: list[UUID] = []
        for row in await self._read(is_due=True, limit=DUE_MAX):
            ticks = plan(
                cron=row.cron,
                timezone=row.timezone,
                missed=row.missed,
                next_at=row.next_at,
                now=row.now,
            )
            for tick in ticks:
                chain_id = new_id() if tick.is_run else None
                arguments = (row.name, tick.at, tick.next_at, chain_id)
                if not await self._sql.value("job_schedule_tick", *arguments):
                    break
                if chain_id is not None:
                    started.append(chain_id)
        return started

    async def _read(
        self, *, is_due: bool, name: str | None = None, after: str | None = None, limit: int
    ) -> list[ScheduleRow]:
        rows = await self._sql.rows("job_schedule_list", is_due, name, after, limit)
        return [ScheduleRow(**members_of(row)) for row in rows]

"""Start chains by the clock: cron expressions in a time zone.

`plan` decides (pure) which ticks of a schedule that is due are run and when it is due next;
`Scheduler` carries it out. Any number of processes may run it: a schedule moves on from a tick
once, in the transaction that starts the tick's chain.

When ticks were missed because nothing ran: `skip` lets them pass, `once` starts one chain for all
of them, `all` starts one for each. A tick that is at most a minute late was not missed.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from skep.db.access.slots import Caller
from skep.jobs.declare.declaration import Job
from skep.jobs.identifiers import new_id
from skep.model.errors import BadRequest

Missed = Literal["skip", "once", "all"]
I = TypeVar("I")  # noqa: E741 -- input, as in Job[I, O]

PUT_CALL: Final = "select skep.job_schedule_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
LIST_CALL: Final = "select * from skep.job_schedule_list($1, $2, $3, $4)"
TICK_CALL: Final = "select skep.job_schedule_tick($1, $2, $3, $4)"
DELETE_CALL: Final = "select skep.job_schedule_delete($1)"
NOW_CALL: Final = "select skep.now()"

LATE: Final = timedelta(minutes=1)
TICKS_MAX: Final = 100
"""Ticks of one schedule that one run catches up with; the rest wait for the next run."""
DUE_MAX: Final = 100


class Schedule(Generic[I]):
    """A job that is started by the clock.

    Args:
        name: unique; putting a schedule of the same name changes it.
        job: what to start.
        value: its input.
        cron: minute, hour, day of month, month and day of week; with six fields seconds come first.
        timezone: whose clock; an IANA name.
        missed: what to do with ticks that no process was there to run.
        is_enabled: whether it runs.
    """

    def __init__(
        self,
        name: str,
        job: Job[I, Any],
        value: I,
        *,
        cron: str,
        timezone: str = "UTC",
        missed: Missed = "once",
        is_enabled: bool = True,
    ) -> None:
        self.name: Final = name
        self.job: Final = job
        self.input: Final = job.encode_input(value)
        self.cron: Final = cron
        self.timezone: Final = timezone
        self.missed: Final[Missed] = missed
        self.is_enabled: Final = is_enabled
        next_tick(cron, timezone, datetime(2000, 1, 1, tzinfo=UTC))


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
    """A schedule as it is stored; `now` is when it was read, by the database's clock."""

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
    now: datetime


class Scheduler:
    """Keeps schedules and runs those that are due."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def put(self, schedule: Schedule[Any]) -> None:
        """Make or change a schedule. With unchanged times it keeps its place."""
        ((now,),) = await self._caller.call(NOW_CALL)
        await self._caller.call(
            PUT_CALL,
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
        )

    async def delete(self, name: str) -> bool:
        """Forget a schedule; return whether there was one."""
        ((is_deleted,),) = await self._caller.call(DELETE_CALL, name)
        return bool(is_deleted)

    async def find(self, name: str) -> ScheduleRow | None:
        """Return a schedule, None if there is none of that name."""
        rows = await self._read(is_due=False, name=name, limit=1)
        return rows[0] if rows else None

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
                ((is_ours,),) = await self._caller.call(TICK_CALL, *arguments)
                if not is_ours:
                    break
                if chain_id is not None:
                    started.append(chain_id)
        return started

    async def _read(
        self, *, is_due: bool, name: str | None = None, after: str | None = None, limit: int
    ) -> list[ScheduleRow]:
        rows = await self._caller.call(LIST_CALL, is_due, name, after, limit)
        return [_schedule(row) for row in rows]


def _schedule(row: Any) -> ScheduleRow:
    members: dict[str, Any] = dict(row)
    members["input"] = msgspec.Raw(row["input"].encode())
    return ScheduleRow(**members)

"""Replay: put what a queue stored in a span of time into a queue once more.

Both tiers are read as one. Each partition of the source is a partition of the target, with its
messages in their order; one transaction stores all of them, or none. What a replay does is its
identity, so the same replay is never done twice, however often it is repeated or killed.
Transaction ids are made of the replay and the address of the message: the same at every attempt,
and different from those of the source, which the target may know already.

A replay copies; it does not move the positions of consumers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from skep.model.errors import BadRequest
from skep.spark.runtime.postgres import database
from skep.spark.source.columns import HEADERS
from skep.spark.transfer import single_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME_CHARS_MAX: Final = 100
COUNTED_COLUMNS: Final = "partition string, created_at timestamp"
"""All that is read to count a replay without a condition."""
WRITTEN_COLUMNS: Final = (
    "partition string, offset bigint, payload string, headers map<string,string>"
)
"""All that is read to do one, beside an id: the data source cannot be told later what a query
leaves out."""

NOW: Final = "select skep.now() as now"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan(single_write.StoredMessages):
    """What is replayed, and where to."""

    into: str
    since: datetime
    until: datetime
    name: str | None = None
    """Tells a replay from others that do the same; None for the only one."""
    keeps_ids: bool = False
    """Messages keep their transaction ids, and what the target knows by them is left out."""
    may_decrypt: bool = False
    on_error: str = "fail"

    @property
    def write_id(self) -> str:
        """The name of the replay in the database: what it does, in short."""
        if self.name is not None:
            return f"replay:{self.name}"
        said = (
            self.queue,
            self.into,
            self.since.isoformat(),
            self.until.isoformat(),
            self.where or "",
            "kept" if self.keeps_ids else "made",
            *(() if self.partition is None else (self.partition,)),
        )
        return f"replay:{single_write.short_digest(*said)}"


class Counted(NamedTuple):
    """What a replay would bring."""

    messages: int
    partitions: int
    first: datetime | None
    last: datetime | None


class Replay:
    """One replay, checked when it is made."""

    def __init__(self, session: Callable[[], "SparkSession"], plan: ReplayPlan) -> None:
        """Check that it can be done; `session` is not called unless there is something to do.

        Raises `BadRequest` if the span of time or the name makes no sense, and what `check_source`
        and `check_target` do.
        """
        self._session: Final = session
        self._plan: Final = plan
        _check_span(plan)
        if plan.name is not None and not 0 < len(plan.name) <= NAME_CHARS_MAX:
            raise BadRequest(f"the name of a replay has 1 to {NAME_CHARS_MAX} characters")
        is_sealed = single_write.check_source(plan.url, plan.queue, plan.keys)
        single_write.check_target(
            plan.url, plan.into, plan.keys, is_sealed=is_sealed, may_decrypt=plan.may_decrypt
        )

    def count(self) -> Counted:
        """Return what it would bring, without writing anything."""
        from pyspark.sql import functions as f  # noqa: PLC0415 (heavy, and an extra)

        with single_write.explained():
            counted = self._plan.frame(
                self._session(), None if self._plan.where else COUNTED_COLUMNS
            ).agg(
                f.count("*"),
                f.count_distinct("partition"),
                f.min("created_at"),
                f.max("created_at"),
            )
            return Counted(*counted.collect()[0])

    def run(self, on_reached: single_write.OnReached = lambda _: None) -> single_write.Outcome:
        """Do it, unless it was done before."""
        plan = self._plan
        if done := single_write.outcome_of(plan.url, plan.write_id):
            return done
        with single_write.explained():
            frame = self._ordered()
        options = {"url": plan.url, "queue": plan.into, "onError": plan.on_error, **plan.keys}
        return single_write.write_once(frame, options, plan.write_id, on_reached)

    def _ordered(self) -> "DataFrame":
        """Return the rows to write: each partition whole in one task, in its order."""
        from pyspark.sql import functions as f  # noqa: PLC0415 (heavy, and an extra)

        named = "transaction_id" if self._plan.keeps_ids else "message_id"
        # First of all: columns exist only where a session does. A condition may name any of them.
        columns = None if self._plan.where else f"{named} string, {WRITTEN_COLUMNS}"
        rows = self._plan.frame(self._session(), columns)
        rows = rows.select("partition", "offset", named, "payload", HEADERS)
        rows = rows.repartition("partition").sortWithinPartitions("partition", "offset")
        # Long, and the same for all: made behind the shuffle, which need not carry it.
        made = f.concat(f.lit(f"{self._plan.write_id}:"), f.col(named))
        name = f.col(named) if self._plan.keeps_ids else made
        return rows.select("partition", name.alias("transaction_id"), "payload", HEADERS)


def _check_span(plan: ReplayPlan) -> None:
    if plan.since >= plan.until:
        raise BadRequest("--from must be before --to")
    now: datetime = database(plan.url, single_write.STATEMENT_TIMEOUT_S).rows(NOW)[0]["now"]
    if plan.until > now:
        raise BadRequest(
            f"--to lies in the future of the database, whose clock says {now.isoformat()}: what "
            "comes until then would be left out, and the replay could not be repeated for it"
        )

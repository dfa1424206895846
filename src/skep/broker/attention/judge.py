"""Decide what needs attention, how urgently, why probably, and what to do first. Pure.

An item says what is the matter (`summary`), its likely cause in plain words, and one action: a
request to the API, or a page of the dashboard to open. Facts that are fine make no item.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from skep.broker.attention import facts as seen
from skep.broker.groups.condition import KEEPS_UP_S
from skep.broker.timestamps import spell_moment
from skep.model.plurals import counted
from skep.model.wire import QUEUE_MODE

Severity: TypeAlias = Literal["critical", "warning", "notice"]

ITEMS_MAX: Final = 50
UNREAD_LONG_S: Final = 300
"""After so long without consumers, or without workers, waiting is critical."""
FRESH_S: Final = 3600
"""Dead letters no older than this are a warning."""
SHRINKS_PER_S_MIN: Final = 1e-6
"""A backlog that loses less than a message in eleven days does not shrink."""
CROWDED_SHARE: Final = 0.9
FULL_SHARE: Final = 0.97

_RANKS: Final[tuple[Severity, ...]] = ("critical", "warning", "notice")


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to do first."""

    label: str
    kind: str
    """`open`: `path` is a page of the dashboard; otherwise it takes a POST request."""
    path: str
    body: dict[str, Any] | None = None
    """The JSON body of the request, if it needs one."""


class AttentionItem(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """Something that needs attention."""

    kind: str
    severity: Severity
    queue: str | None = None
    group: str | None = None
    name: str | None = None
    """Of what is neither a queue nor a group: a job type, a pipeline, an instance, a partition."""
    summary: str
    cause: str
    """The likely one."""
    since: str | None = None
    lag: int | None = None
    """Messages behind."""
    lag_seconds: int | None = None
    growth_per_second: float | None = None
    """Of the backlog; negative while it shrinks."""
    drain_seconds: int | None = None
    """Until nothing is left, at this pace."""
    count: int | None = None
    action: Action


class StateCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are, by state; empty where the caller may not know."""

    messages: dict[str, int]
    groups: dict[str, int]
    jobs: dict[str, int]
    """Open jobs by state, and chains that failed in the last day."""
    pipelines: dict[str, int]
    instances: dict[str, int]
    queues: dict[str, int]


class Attention(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What needs attention, worst first, and how many there are of everything."""

    checked_at: str
    items: list[AttentionItem]
    total: int
    """Items found; at most fifty are listed."""
    counts: StateCounts


def judge(facts: seen.Facts) -> Attention:
    """Return what needs attention."""
    items = sorted(_items(facts), key=_by_need)
    return Attention(
        checked_at=spell_moment(facts.checked_at),
        items=items[:ITEMS_MAX],
        total=len(items),
        counts=StateCounts(
            messages=dict(facts.messages),
            groups=dict(Counter(each.condition for each in facts.groups)),
            jobs=dict(facts.jobs),
            pipelines=dict(
                Counter("silent" if each.is_silent else each.state for each in facts.pipelines)
            ),
            instances=dict(facts.instances),
            queues=dict(Counter(each.condition for each in facts.queues)),
        ),
    )


def _items(facts: seen.Facts) -> Iterator[AttentionItem]:
    yield from _process(facts.process)
    for group in facts.groups:
        yield from _group(group)
    for queue in facts.queues:
        if queue.is_paused:
            yield _paused_queue(queue)
    for letters in facts.letters:
        yield _letters(letters, facts.checked_at)
    yield from map(_chains, facts.chains)
    for job_type in facts.job_types:
        yield _job_type(job_type, facts.workers)
    for pipeline in facts.pipelines:
        yield from _pipeline(pipeline)
    yield from map(_archive, facts.archives)
    yield from map(_stuck, facts.stuck)
    yield from map(_lost, facts.lost)


def _by_need(item: AttentionItem) -> tuple[int, float, int, str, str, str]:
    return (
        _RANKS.index(item.severity),
        -(item.lag_seconds or 0),
        -(item.lag or item.count or 0),
        item.kind,
        item.queue or "",
        item.group or item.name or "",
    )


# Groups and queues


def _group(group: seen.GroupSeen) -> Iterator[AttentionItem]:
    match group.condition:
        case "stalled":
            since = _spell(group.progressed_at)
            yield _behind(group, "critical", "is stalled", _why_stalled(group), since=since)
        case "no-consumers":
            severity: Severity = "notice" if group.lag_s <= KEEPS_UP_S else "warning"
            if group.lag_s > UNREAD_LONG_S:
                severity = "critical"
            cause = "No consumer polls: it is stopped, cannot connect, or uses another group name."
            since = _spell(group.polled_at)
            yield _behind(group, severity, "has no consumers", cause, since=since)
        case "lagging" if group.growth is not None and group.growth > 0:
            cause = "Messages arrive faster than consumers finish them. Add consumers."
            yield _behind(group, "warning", "is falling behind", cause)
        case "lagging":
            cause = "Consumers work off what piled up before."
            yield _behind(group, "notice", "is behind", cause)
        case "paused" if group.is_paused:
            yield _paused_group(group)
        case _:
            pass
    if group.blocked_partitions and group.condition != "stalled":
        yield _blocked(group)


def _why_stalled(group: seen.GroupSeen) -> str:
    if group.blocked_partitions:
        return (
            f"The first message of partition {group.blocked_partition} was delivered "
            f"{group.deliveries:,} times and never finished. Everything behind it waits."
        )
    if group.is_failing:
        return "Every message delivered since then failed: the handler raises errors."
    if group.is_held:
        return "Consumers hold messages and finish none: a handler hangs, or a consumer died."
    return "Consumers poll, but what there is to read waits for a retry or a delay."


def _behind(
    group: seen.GroupSeen, severity: Severity, state: str, cause: str, *, since: str | None = None
) -> AttentionItem:
    return AttentionItem(
        kind=f"group-{group.condition}",
        severity=severity,
        queue=group.queue,
        group=group.group,
        summary=f"{_name_of(group.group)} on {group.queue} {state}: "
        f"{counted(group.backlog, 'message')} behind, the oldest for {spell_span(group.lag_s)}",
        cause=cause,
        since=since,
        **_lag(group),
        action=_open("Open group", "groups", group.group, group.queue),
    )


def _lag(group: seen.GroupSeen) -> dict[str, Any]:
    growth = group.growth
    return {
        "lag": group.backlog,
        "lag_seconds": int(group.lag_s),
        "growth_per_second": None if growth is None else round(growth, 3),
        "drain_seconds": drain_s(group.backlog, growth),
    }


def _paused_group(group: seen.GroupSeen) -> AttentionItem:
    waits = group.backlog > 0
    return AttentionItem(
        kind="group-paused",
        severity="warning" if waits else "notice",
        queue=group.queue,
        group=group.group,
        summary=f"{_name_of(group.group)} on {group.queue} is paused"
        + (f": {_waiting(group.backlog)}" if waits else ""),
        cause="An operator paused the delivery to the group.",
        **_lag(group),
        action=Action(
            "Resume group",
            "resume-group",
            _path("api/v1/consumer-groups", group.group, "queues", group.queue, "resume"),
        ),
    )


def _blocked(group: seen.GroupSeen) -> AttentionItem:
    partitions = counted(group.blocked_partitions, "partition")
    return AttentionItem(
        kind="partition-blocked",
        severity="warning",
        queue=group.queue,
        group=group.group,
        name=group.blocked_partition,
        summary=f"{_name_of(group.group)} cannot get past the first message in {partitions} of "
        f"{group.queue}",
        cause=f"In partition {group.blocked_partition} it was delivered {group.deliveries:,} times "
        "and never finished: the handler fails or dies of it.",
        count=group.blocked_partitions,
        action=_open("Open group", "groups", group.group, group.queue),
    )


def _paused_queue(queue: seen.QueueSeen) -> AttentionItem:
    grows, waits = queue.in_per_second > 0, queue.backlog > 0
    return AttentionItem(
        kind="queue-paused",
        severity="warning" if grows or waits else "notice",
        queue=queue.name,
        summary=f"{queue.name} is paused"
        + (f": {_waiting(queue.backlog)}" if waits else "")
        + (", and more arrive" if grows else ""),
        cause="An operator paused the queue. Pushes continue, nothing is delivered.",
        lag=queue.backlog,
        growth_per_second=round(queue.in_per_second, 3) if grows else None,
        action=Action("Resume queue", "resume-queue", _path("api/v1/queues", queue.name, "resume")),
    )


def _letters(letters: seen.LettersSeen, now: datetime) -> AttentionItem:
    is_fresh = (now - letters.last_at).total_seconds() <= FRESH_S
    reader = "" if letters.group is None else f" of {_within(letters.group)}"
    chosen = {"queue": letters.queue, "from": spell_moment(letters.since)}
    if letters.group is not None:
        chosen["consumerGroup"] = letters.group
    return AttentionItem(
        kind="dead-letters",
        severity="warning" if is_fresh else "notice",
        queue=letters.queue,
        group=letters.group,
        summary=f"{counted(letters.count, 'new dead letter')}{reader} on {letters.queue}",
        cause=f"Most frequent error: {_cut(letters.error)}" if letters.error else _NO_ERROR,
        since=_spell(letters.since),
        count=letters.count,
        action=Action("Redrive", "redrive", "/api/v1/dlq/redrive", chosen),
    )


# Jobs and pipelines


def _chains(chains: seen.ChainsSeen) -> AttentionItem:
    return AttentionItem(
        kind="chains-failed",
        severity="warning",
        name=chains.type,
        summary=f"{counted(chains.count, 'chain')} of {chains.type} failed",
        cause=f"Most frequent error: {_cut(chains.error)}" if chains.error else _NO_ERROR,
        since=_spell(chains.since),
        count=chains.count,
        action=Action(
            "Retry chains",
            "retry-jobs",
            "/api/v1/chains/matching/retry",
            {"type": chains.type, "state": "failed"},
        ),
    )


def _job_type(job_type: seen.JobTypeSeen, workers: int) -> AttentionItem:
    waited_s = job_type.oldest_s or 0
    waits = f"the first ready job has waited for {spell_span(waited_s)}"
    if job_type.is_paused:
        return AttentionItem(
            kind="job-type-paused",
            severity="warning" if waited_s else "notice",
            name=job_type.name,
            summary=f"Jobs of {job_type.name} are paused" + (f": {waits}" if waited_s else ""),
            cause="An operator paused the job type. Running jobs end, no other starts.",
            lag_seconds=int(waited_s) or None,
            action=Action(
                "Resume jobs",
                "resume-jobs",
                _path("api/v1/jobs/types", job_type.name, "resume"),
            ),
        )
    return AttentionItem(
        kind="jobs-waiting",
        severity="critical" if waited_s > UNREAD_LONG_S and not workers else "warning",
        name=job_type.name,
        summary=f"Jobs of {job_type.name} wait: {waits}",
        cause="No worker is running."
        if not workers
        else "All workers are busy, a limit holds the jobs back, or no worker has this type.",
        lag_seconds=int(waited_s),
        action=_open("Open jobs", "chains", type=job_type.name),
    )


def _pipeline(pipeline: seen.PipelineSeen) -> Iterator[AttentionItem]:
    severity: Severity = "critical"
    if pipeline.is_silent:
        state, cause = "does not report", "Its runner died or cannot reach the database."
    elif pipeline.state == "failed":
        state = "failed"
        cause = f"Last error: {_cut(pipeline.error)}" if pipeline.error else _NO_ERROR
    elif pipeline.state == "stopped":
        severity, state, cause = "notice", "is stopped", "It was asked to stop, or its input ended."
    else:
        return
    yield AttentionItem(
        kind="pipeline-silent" if pipeline.is_silent else f"pipeline-{pipeline.state}",
        severity=severity,
        name=pipeline.name,
        summary=f"Pipeline {pipeline.name} {state}",
        cause=cause,
        since=_spell(pipeline.since),
        action=_open("Open pipeline", "pipelines", pipeline.name),
    )


def _archive(archive: seen.ArchiveSeen) -> AttentionItem:
    return AttentionItem(
        kind="archive-late",
        severity="warning",
        queue=archive.queue,
        summary=f"The archive of {archive.queue} is late by {spell_span(archive.late_s)}",
        cause="Nothing runs skep archive regularly, or its runs fail.",
        since=_spell(archive.archived_at),
        lag_seconds=int(archive.late_s),
        action=_open("Open archive", "pipelines", tab="archive"),
    )


# The installation


def _stuck(stuck: seen.StuckSeen) -> AttentionItem:
    return AttentionItem(
        kind="operation-stuck",
        severity="critical",
        queue=stuck.queue,
        name=stuck.partition,
        summary=f"A deferred operation on {stuck.queue} is stuck, and what comes after it in "
        f"partition {stuck.partition}",
        cause="No process executes it: the broker is overloaded, or the operation fails each time.",
        since=_spell(stuck.since),
        action=_open("Open operations", "operations"),
    )


def _lost(instance: seen.InstanceSeen) -> AttentionItem:
    return AttentionItem(
        kind="instance-lost",
        severity="warning",
        name=instance.name,
        summary=f"Instance {instance.name} has not reported for {spell_span(instance.silent_s)}",
        cause="It crashed, was killed, or cannot reach the database.",
        action=_open("Open system", "system"),
    )


def _process(process: seen.ProcessSeen) -> Iterator[AttentionItem]:
    def item(
        kind: str, severity: Severity, summary: str, cause: str, action: Action, **members: Any
    ) -> AttentionItem:
        return AttentionItem(
            kind=kind, severity=severity, summary=summary, cause=cause, action=action, **members
        )

    operations, system = _open("Open operations", "operations"), _open("Open system", "system")
    if process.is_push_maintenance:
        yield item(
            "maintenance-push",
            "warning",
            "Push maintenance is on: pushes are kept on disk",
            "An operator switched it on.",
            _end_maintenance("/api/v1/system/maintenance"),
        )
    if process.is_pop_maintenance:
        yield item(
            "maintenance-pop",
            "warning",
            "Pop maintenance is on: nothing is delivered",
            "An operator switched it on.",
            _end_maintenance("/api/v1/system/maintenance/pop"),
        )
    if process.spilled and not process.is_push_maintenance:
        away = process.is_database_away
        yield item(
            "spill-in-use",
            "critical" if away else "warning",
            f"{counted(process.spilled, 'message')} on this instance's disk, not yet in PostgreSQL",
            "PostgreSQL is unreachable." if away else "They are being stored after an outage.",
            operations,
            count=process.spilled,
        )
    if process.rejected:
        yield item(
            "spill-rejected",
            "critical",
            f"{counted(process.rejected, 'spilled record')} could not be stored",
            "The queue refuses them now, or they are damaged. Each is in a file of its own.",
            operations,
            count=process.rejected,
        )
    if process.dedup_share >= CROWDED_SHARE or process.dedup_lacking_s > 0:
        yield item(
            "dedup-memory",
            "warning" if process.dedup_lacking_s > 0 else "notice",
            f"Memory for duplicate detection is {min(process.dedup_share, 1):.0%} full",
            "Older ids are looked up in PostgreSQL with every push. Raise dedup_memory_max_mib or "
            "shorten dedupWindowSeconds."
            if process.dedup_lacking_s > 0
            else "Soon older ids must be looked up in PostgreSQL. Raise dedup_memory_max_mib or "
            "shorten dedupWindowSeconds.",
            system,
        )
    share = process.connections / process.connections_max if process.connections_max else 0
    if share >= CROWDED_SHARE:
        yield item(
            "connections",
            "critical" if share >= FULL_SHARE else "warning",
            f"{process.connections:,} of {process.connections_max:,} connections of PostgreSQL are "
            "in use",
            "Too many brokers, workers or applications for max_connections. When none is left, "
            "what restarts cannot come back.",
            system,
            count=process.connections,
        )


# Words

_NO_ERROR: Final = "No error is on record."
_ERROR_CHARS: Final = 200


def drain_s(backlog: int, growth: float | None) -> int | None:
    """Return in how many seconds a backlog is gone at this pace; None if it hardly shrinks."""
    if not backlog or growth is None or growth > -SHRINKS_PER_S_MIN:
        return None
    return round(backlog / -growth)


def spell_span(seconds: float) -> str:
    """Return a time for people: its largest unit, and a second one below ten."""
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    left = max(int(seconds), 0)
    for place, (size, unit) in enumerate(units):
        if left >= size:
            count, rest = divmod(left, size)
            finer = units[place + 1] if place + 1 < len(units) else None
            if finer is None or count >= 10 or not rest // finer[0]:
                return f"{count} {unit}"
            return f"{count} {unit} {rest // finer[0]} {finer[1]}"
    return "0 s"


def _name_of(group: str) -> str:
    return "The default group" if group == QUEUE_MODE else f"Group {group}"


def _within(group: str) -> str:
    """Return the name of a group for the middle of a sentence."""
    return "the default group" if group == QUEUE_MODE else f"group {group}"


def _waiting(count: int) -> str:
    return f"{counted(count, 'message')} {'waits' if count == 1 else 'wait'}"


def _cut(text: str | None) -> str:
    line = next(iter((text or "").strip().splitlines()), "")
    return line if len(line) <= _ERROR_CHARS else line[: _ERROR_CHARS - 1] + "…"


def _spell(moment: datetime | None) -> str | None:
    return None if moment is None else spell_moment(moment)


def _path(*segments: str) -> str:
    first, *names = segments
    return "/".join(["", first, *(quote(name, safe="") for name in names)])


def _open(label: str, *segments: str, **query: str) -> Action:
    path = _path(*segments) + (f"?{urlencode(query)}" if query else "")
    return Action(label, "open", path)


def _end_maintenance(path: str) -> Action:
    return Action("End maintenance", "end-maintenance", path, {"enabled": False})

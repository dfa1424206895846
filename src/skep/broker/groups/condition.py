"""The condition of a consumer group, or of a queue, in one word. Pure.

Listings, lag routes, metrics and the list of what needs attention share these two definitions. A
group is judged by three things: how long its oldest unread message waits, when a consumer was last
there (a poll, parked long polls included, or a lease), and when it last made progress. Progress is
expected again from the moment on at which consumers return, the group or queue is resumed, or a
seek moves the group; until then the past does not count against it.
"""

from typing import Final, Literal, TypeAlias, get_args

import msgspec

GroupCondition: TypeAlias = Literal[
    "stalled", "no-consumers", "lagging", "paused", "consuming", "empty"
]
QueueCondition: TypeAlias = Literal["waiting", "paused", "draining", "active", "idle"]

WORST_FIRST: Final[tuple[GroupCondition, ...]] = get_args(GroupCondition)
"""All conditions of groups, by how much they need attention."""

KEEPS_UP_S: Final = 60
"""A group whose oldest unread message has waited no longer, the queue's own delay not counted,
keeps up."""

ABSENT_S: Final = 90
"""After so long without a poll or lease there is no consumer. Processes report polls at least once
a minute (`metrics_interval_s`)."""

RATES_S: Final = 60
"""How far rates look back."""

STALLED_S: Final = 120
"""How long a group may make no progress before it is stalled; under lease, as long as a lease of
the queue lasts if that is longer."""


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a group on a queue."""

    is_paused: bool
    """The group, or its queue."""
    backlog: int
    """Messages it has yet to finish."""
    lag_s: float
    """Age of the oldest of them."""
    is_held: bool
    """Some partition is leased."""
    polled_s: float | None
    """Since a consumer last polled; None if none ever did."""
    progressed_s: float | None
    """Since progress was last made or could first be expected."""
    is_failing: bool
    """Messages have failed since, and none was finished."""
    delay_s: float = 0
    """How long the queue itself keeps messages back."""
    lease_s: float = 0
    """How long a lease of the queue lasts."""


def group_condition(facts: GroupFacts) -> GroupCondition:
    """Return the condition of a group."""
    has_consumer = facts.is_held or (facts.polled_s is not None and facts.polled_s <= ABSENT_S)
    if facts.is_paused:
        return "paused"
    if not facts.backlog:
        return "consuming" if has_consumer else "empty"
    if not has_consumer:
        return "no-consumers"
    late_s = facts.lag_s - facts.delay_s
    if late_s <= KEEPS_UP_S:
        return "consuming"
    is_at_work = facts.is_held and not facts.is_failing
    patience_s = max(STALLED_S, facts.lease_s) if is_at_work else STALLED_S
    # Nothing was expected of it while it had nothing to read.
    idle_s = late_s if facts.progressed_s is None else min(late_s, facts.progressed_s)
    return "stalled" if idle_s > patience_s else "lagging"


def queue_condition(
    *, is_paused: bool, is_waiting: bool, in_per_second: float, out_per_second: float
) -> QueueCondition:
    """Return the condition of a queue, by whether messages wait in it and its latest rates."""
    if is_paused:
        return "paused"
    if is_waiting and not out_per_second:
        return "waiting"
    if is_waiting and not in_per_second:
        return "draining"
    return "active" if in_per_second or out_per_second else "idle"

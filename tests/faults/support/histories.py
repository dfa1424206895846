"""Whether a history of transactions could have happened one after the other.

The ledger judges single messages. This judges transactions that consume messages and push others:
it derives from what clients saw which transaction must come before which, and looks for a circle,
as Elle does for lists that are appended to. A partition is such a list, a push appends to it, and
offsets give the order of its versions, so nothing has to be guessed:

* ww: of two transactions that pushed into a partition, the one with the lower offset comes first;
  so does the one that consumed the lower offset for a group;
* wr: the transaction that pushed a message comes before those that consumed or read it;
* rw: a read to the end of a partition comes before the push of the next message;
* rt: what was answered before another was sent comes before it.

A transaction without an answer took place if any of its messages is there in the end.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"

ANOMALIES = (
    "aborted read",
    "lost",
    "fractured",
    "stored twice",
    "consumed twice",
    "cycle",
)
"""How anomalies begin."""

CYCLES = (("ww",), ("ww", "wr"), ("ww", "wr", "rw"), ("ww", "wr", "rw", "rt"))
"""Dependencies that may form a circle: the fewest that do say what went wrong."""


@dataclass(frozen=True)
class Transaction:
    """Messages consumed and pushed together, by partition and transaction id."""

    name: str
    sent_at: float
    answered_at: float | None
    outcome: str
    pushed: tuple[tuple[str, str], ...] = ()
    consumed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Read:
    """Messages of one partition as a poll got them, in order; perhaps all that there were."""

    name: str
    sent_at: float
    answered_at: float
    partition: str
    messages: tuple[str, ...]
    is_to_the_end: bool


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final: dict[str, list[str]] = field(default_factory=dict)
    """What every partition holds in the end, in the order of offsets."""


def anomalies(history):
    """Return everything that no order of whole transactions explains."""
    places = {
        (partition, message): offset
        for partition, messages in history.final.items()
        for offset, message in enumerate(messages)
    }
    happened = [
        each
        for each in history.transactions
        if each.outcome == COMMITTED
        or (each.outcome == UNKNOWN and any(message in places for message in each.pushed))
    ]
    return [
        *_aborted_reads(history, places),
        *_missing(happened, places),
        *_repeated(history, happened),
        *_cycles(history, happened, places),
    ]


def _aborted_reads(history, places):
    for each in history.transactions:
        if each.outcome == ABORTED and (seen := [m for m in each.pushed if m in places]):
            yield f"aborted read: {each.name} was undone, and {seen} is there"


def _missing(happened, places):
    for each in happened:
        missing = [message for message in each.pushed if message not in places]
        if missing and len(missing) < len(each.pushed):
            yield f"fractured: {each.name} left {missing} out"
        elif missing:
            yield f"lost: {each.name} was committed, and {missing} is not there"


def _repeated(history, happened):
    for partition, messages in history.final.items():
        for message, count in Counter(messages).items():
            if count > 1:
                yield f"stored twice: {message} in {partition}"
    consumers = Counter(message for each in happened for message in each.consumed)
    for message, count in consumers.items():
        if count > 1:
            yield f"consumed twice: {message} by {count} transactions"


def _cycles(history, happened, places):
    dependencies = _dependencies(history, happened, places)
    for kinds in CYCLES:
        graph = defaultdict(set)
        for kind in kinds:
            for before, after in dependencies[kind]:
                graph[after].add(before)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            members = [name for name in error.args[1] if isinstance(name, str)]
            yield f"cycle: by {', '.join(kinds)}: {' -> '.join(reversed(members))}"
            return


def _dependencies(history, happened, places):
    pushed_by = {message: each.name for each in happened for message in each.pushed}
    dependencies = {kind: set() for kind in CYCLES[-1]}

    def depend(kind, before, after):
        if before is not None and after is not None and before != after:
            dependencies[kind].add((before, after))

    consumed_by = {message: each.name for each in happened for message in each.consumed}
    for partition, messages in history.final.items():
        for makers in (pushed_by, consumed_by):
            names = [makers.get((partition, message)) for message in messages]
            for before, after in pairwise(name for name in names if name is not None):
                depend("ww", before, after)
    for each in happened:
        for message in each.consumed:
            depend("wr", pushed_by.get(message), each.name)
    for read in history.reads:
        for message in read.messages:
            depend("wr", pushed_by.get((read.partition, message)), read.name)
        last = places.get((read.partition, read.messages[-1])) if read.messages else None
        following = history.final[read.partition][last + 1 :] if last is not None else ()
        if read.is_to_the_end and following:
            depend("rw", read.name, pushed_by.get((read.partition, following[0])))
    dependencies["rt"] = _real_time([*happened, *history.reads])
    return dependencies


def _real_time(events):
    """Order by the clock, through moments in a row: as many dependencies as events, not squared."""
    moments = sorted({at for each in events for at in (each.sent_at, each.answered_at) if at})
    dependencies = set(pairwise(moments))
    following = dict(pairwise(moments))
    for each in events:
        dependencies.add((each.sent_at, each.name))
        # Answers and questions of the same moment say nothing about their order.
        if each.answered_at is not None and each.answered_at in following:
            dependencies.add((each.name, following[each.answered_at]))
    return dependencies

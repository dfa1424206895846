"""What happened, as its clients saw it, and whether a broker may behave so.

The ledger stands outside the system: producers and consumers write down what they sent and what
they were told, with the moments of both on one clock. The checker reads it afterwards and takes
nothing on trust but these facts. A request was carried out at some moment between being sent and
being answered, and whatever cannot be concluded from that is not complained about.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

KINDS = (
    "lost",
    "phantom",
    "aborted read",
    "stored twice",
    "disorder",
    "delivered after",
    "two leases at once",
    "unexplained",
)
"""How complaints begin."""


@dataclass(frozen=True)
class Attempt:
    """A producer sent a message, perhaps again. Its sequence counts what it sent to a partition."""

    partition: str
    transaction_id: str
    producer: str
    sequence: int


@dataclass(frozen=True)
class Stored:
    """A push was answered: the message is stored under this id, or kept to be stored (no id)."""

    partition: str
    transaction_id: str
    message_id: str | None

    @property
    def name(self):
        return self.partition, self.transaction_id


@dataclass(frozen=True)
class RolledBack:
    """A push was answered as undone: nobody may ever see the message."""

    partition: str
    transaction_id: str


@dataclass(frozen=True)
class Delivery:
    """A consumer received a message under a lease."""

    group: str
    partition: str
    message_id: str
    transaction_id: str
    lease_id: str
    lease_s: float
    asked_at: float
    received_at: float

    @property
    def progress_key(self):
        return self.group, self.partition

    @property
    def surely_leased_until(self):
        """The lease was given after the consumer asked, so it cannot end before this by itself."""
        return self.asked_at + self.lease_s


@dataclass(frozen=True)
class Ack:
    """A consumer said what became of a message. Without an answer nobody knows if it counts."""

    group: str
    partition: str
    transaction_id: str
    lease_id: str
    status: str
    sent_at: float
    answered_at: float | None = None
    is_success: bool = False

    @property
    def progress_key(self):
        return self.group, self.partition

    @property
    def is_done(self):
        """The broker confirmed that the message will not come again."""
        return self.is_success and self.status == "completed"

    @property
    def is_refused(self):
        """It was in vain. (A failure told twice is refused too, but the first time it counted.)"""
        is_answered = self.answered_at is not None
        return is_answered and not self.is_success and self.status == "completed"


@dataclass
class Ledger:
    """The history of one run, in the order in which it was written down."""

    attempts: list[Attempt] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    rolled_back: list[RolledBack] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)


def complaints(ledger, groups):
    """Return every offence against the promises of the broker; for these groups all is drained."""
    return [
        *_lost(ledger, groups),
        *_phantoms(ledger),
        *_aborted_reads(ledger),
        *_stored_twice(ledger),
        *_disorder(ledger),
        *_delivered_after_ack(ledger),
        *_overlapping_leases(ledger),
        *_unexplained_duplicates(ledger),
    ]


def summary(ledger, groups):
    """Return how often each promise was broken; zeros are the point of it."""
    offences = Counter(
        next(kind for kind in KINDS if offence.startswith(kind))
        for offence in complaints(ledger, groups)
    )
    return {kind: offences[kind] for kind in KINDS}


def require_good(ledger, groups):
    """Fail with the first offences, or when there was nothing to offend against."""
    offences = complaints(ledger, groups)
    assert not offences, f"{len(offences)} offences, the first: {offences[:5]}"
    assert ledger.stored
    assert ledger.deliveries


def _lost(ledger, groups):
    """Every message whose push was answered reaches every group."""
    for group in groups:
        came = [each for each in ledger.deliveries if each.group == group]
        ids = {each.message_id for each in came}
        names = {(each.partition, each.transaction_id) for each in came}
        for stored in ledger.stored:
            has_come = (
                stored.name in names if stored.message_id is None else stored.message_id in ids
            )
            if not has_come:
                yield f"lost: {stored} never reached {group}"


def _phantoms(ledger):
    """Nothing is delivered that nobody pushed, or elsewhere, or under another id."""
    attempted = {(each.partition, each.transaction_id) for each in ledger.attempts}
    id_by_name = {s.name: s.message_id for s in ledger.stored if s.message_id is not None}
    for delivery in ledger.deliveries:
        name = delivery.partition, delivery.transaction_id
        if name not in attempted:
            yield f"phantom: nobody pushed {delivery}"
        elif id_by_name.get(name, delivery.message_id) != delivery.message_id:
            yield f"phantom: the push was told {id_by_name[name]}, not {delivery}"


def _aborted_reads(ledger):
    """Nothing is delivered whose push was rolled back."""
    undone = {(each.partition, each.transaction_id) for each in ledger.rolled_back}
    for delivery in ledger.deliveries:
        if (delivery.partition, delivery.transaction_id) in undone:
            yield f"aborted read: {delivery}"


def _stored_twice(ledger):
    """A message that was sent again is still one message."""
    ids_by_name = defaultdict(set)
    for each in (*ledger.stored, *ledger.deliveries):
        if each.message_id is not None:
            ids_by_name[each.partition, each.transaction_id].add(each.message_id)
    for name, ids in ids_by_name.items():
        if len(ids) > 1:
            yield f"stored twice: {name} is {sorted(ids)}"


def _disorder(ledger):
    """Per partition and producer, messages first appear in the order sent, with none left out."""
    sent = {(each.partition, each.transaction_id): each for each in ledger.attempts}
    last_sequence = defaultdict(int)
    seen = set()
    for delivery in ledger.deliveries:
        attempt = sent.get((delivery.partition, delivery.transaction_id))
        if attempt is None or (delivery.progress_key, delivery.message_id) in seen:
            continue
        seen.add((delivery.progress_key, delivery.message_id))
        line = delivery.progress_key, attempt.producer
        if attempt.sequence != last_sequence[line] + 1:
            yield f"disorder: after {last_sequence[line]} came {attempt} in {delivery.progress_key}"
        last_sequence[line] = attempt.sequence


def _delivered_after_ack(ledger):
    """What a consumer completed does not come again."""
    done = {}
    for ack in ledger.acks:
        if ack.is_done:
            done.setdefault((ack.progress_key, ack.transaction_id), ack)
    for delivery in ledger.deliveries:
        ack = done.get((delivery.progress_key, delivery.transaction_id))
        if ack is None or delivery.lease_id == ack.lease_id:
            continue
        # An answer may be overtaken on its way: its lease had ended before the other one began.
        is_straggler = delivery.surely_leased_until < ack.answered_at
        if delivery.received_at > ack.answered_at and not is_straggler:
            yield f"delivered after {ack}: {delivery}"


def _overlapping_leases(ledger):
    """At no moment do two consumers of a group hold the same partition."""
    leases = defaultdict(list)
    for delivery in ledger.deliveries:
        leases[delivery.progress_key, delivery.lease_id].append(delivery)
    ended_at = _lease_ends(ledger, leases)
    by_partition = defaultdict(list)
    for (partition, lease_id), deliveries in leases.items():
        begin = deliveries[0].received_at
        end = min(deliveries[0].surely_leased_until, ended_at[partition, lease_id])
        if begin < end:
            by_partition[partition].append((begin, end, lease_id))
    for partition, spans in by_partition.items():
        # In the order of their beginnings, so that any overlap shows between neighbours.
        for one, other in pairwise(sorted(spans)):
            if other[0] < one[1]:
                yield f"two leases at once on {partition}: {one[2]} and {other[2]}"


def _lease_ends(ledger, leases):
    """When a consumer first sent something that ends its lease: a failure, or its last message."""
    last_of = {key: deliveries[-1].transaction_id for key, deliveries in leases.items()}
    ended_at = defaultdict(lambda: float("inf"))
    for ack in ledger.acks:
        key = ack.progress_key, ack.lease_id
        if ack.is_refused:
            continue
        if ack.status != "completed" or last_of.get(key) == ack.transaction_id:
            ended_at[key] = min(ended_at[key], ack.sent_at)
    return ended_at


def _unexplained_duplicates(ledger):
    """A message comes again only because its lease may have ended, or its consumer failed."""
    failed_at = {}
    for ack in ledger.acks:
        if ack.status != "completed":
            failed_at.setdefault((ack.progress_key, ack.lease_id), ack.sent_at)

    def may_follow(earlier, later):
        failure_at = failed_at.get((earlier.progress_key, earlier.lease_id), float("inf"))
        return later.received_at >= min(earlier.surely_leased_until, failure_at)

    by_message = defaultdict(list)
    for delivery in ledger.deliveries:
        by_message[delivery.progress_key, delivery.message_id].append(delivery)
    for deliveries in by_message.values():
        for one, other in pairwise(sorted(deliveries, key=lambda each: each.received_at)):
            # The answer that came later may be the one that was given first.
            is_overtaken = other.asked_at < one.received_at and may_follow(other, one)
            if not may_follow(one, other) and not is_overtaken:
                yield f"unexplained: {one} came again as {other}"

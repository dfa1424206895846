"""Whatever happens while pushes wait: each is answered once, and partitions keep their order."""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import count, pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Raw

from skep.broker.directory import Directory, Partition, PartitionRequest
from skep.broker.push.accept import Push
from skep.broker.push.request import PendingWrite
from skep.broker.push.rules import QueueRules
from skep.broker.scheduled.accept import Schedule, ScheduleOutcome
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import Overloaded, PartitionDeferred, Refused, Unavailable
from skep.model.wire import DEFAULT_PARTITION, PushItem

KEYS = [("hive", "a"), ("hive", "b"), ("hive", "c"), ("nest", "a")]
QUEUE_IDS = {"hive": 1, "nest": 2}
ERRORS = [Unavailable, Overloaded, Refused, PartitionDeferred]
OPERATIONS = {"push": 4, "provision": 2, "schedule": 1}


class Engine:
    """The real core; the test says when calls leave and how they come back."""

    def __init__(self, capacity):
        operations = {
            name: (
                BatchPolicy(
                    preferred_weight=1, hold_s_max=0, weight_max=4_000, concurrency_max=calls
                ),
                StaticLimiter(calls),
            )
            for name, calls in OPERATIONS.items()
        }
        self.core = FusionCore(operations, slots=8, weight_capacity=capacity)
        self.admit, self.enlarge = self.core.admit, self.core.enlarge
        self.is_under_way = self.core.is_under_way
        self.in_flight = []

    def submit(self, operation, partition, weight, work, *, is_admitted=False):
        return self.core.offer(operation, partition, weight, work, 0.0, is_admitted=is_admitted)


class Disk:
    """Takes everything during an outage; later what belongs behind something it holds."""

    def __init__(self, *, is_usable):
        self.is_usable = is_usable
        self.is_away = False
        self.is_broken = False
        self.kept = defaultdict(list)

    @property
    def is_needed(self):
        return self.is_usable and (self.is_away or bool(self.kept))

    def keeps(self, key):
        return self.is_usable and (self.is_away or key in self.kept)

    def take(self, request, items, producer, retry, is_under_way):
        waiting = [at for at, item in enumerate(items) if self.keeps(key_of(item))]
        kept = [at for at in waiting if not is_under_way(key_of(items[at]))]
        if kept:
            self.divert_items(request, items, kept, producer)
        return [at for at in range(len(items)) if at not in kept]

    def divert_items(self, request, items, positions, producer):
        if self.is_broken:
            raise Overloaded
        for at in positions:
            self.kept[key_of(items[at])].append(items[at].transaction_id)
            request.settle(at, b"buffered")

    def divert_write(self, write):
        for entry in write.unanswered():
            self.kept[write.partition.key].append(name_of(entry))
            entry[0].settle(entry[1], b"buffered")

    def divert_later(self, later):
        for _, entry, _, _ in later:
            entry[0].settle(entry[1], b"buffered")


def key_of(item):
    return item.queue, item.partition or DEFAULT_PARTITION


def name_of(entry):
    return entry[4].decode().strip('"')


class Interleavings(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.numbers, self.partition_ids = count(1), count(1)
        self.accepted, self.answers = set(), Counter()
        self.stored = defaultdict(list)
        """By partition: what was stored directly or from disk."""
        self.push_order = {}
        self.lives = Counter()
        """How often a partition was deleted or forgotten: pushes before and after have no order."""
        self.directory = Directory()

    @initialize(capacity=st.sampled_from([3_000, 1 << 20]), has_disk=st.booleans())
    def start(self, capacity, has_disk):
        self.engine, self.disk = Engine(capacity), Disk(is_usable=has_disk)
        self.push = Push(
            self.engine,
            self.directory,
            Schedule(self.engine),
            fallback=None,
            diversion=self.disk,
            hash_seed=7,
            now=lambda: datetime.now(UTC),
        )

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), is_later=st.booleans())
    def push_messages(self, keys, is_later):
        number = next(self.numbers)
        items = [
            PushItem(queue, partition, Raw(b"1"), f"{number}.{at}")
            for at, (queue, partition) in enumerate(keys)
        ]
        if is_later:
            items[-1].delay_seconds = 60
        on_disk = sum(map(len, self.disk.kept.values()))

        def answer(request):
            assert all(request.results)
            self.answers[number] += 1

        self.push_order.update(
            {
                item.transaction_id: (self.lives[key_of(item)], number, at)
                for at, item in enumerate(items)
                if item.delay_seconds is None
            }
        )
        try:
            self.push.push_messages(items, answer, size=100 * len(items))
        except Overloaded:
            assert not self.answers[number]
            assert sum(map(len, self.disk.kept.values())) == on_disk
        else:
            self.accepted.add(number)

    @rule()
    def calls_leave(self):
        for call in self.engine.core.take_ready(0.0):
            self.engine.in_flight.append(call)
            for unit in call.units:
                if isinstance(unit.work, PendingWrite):
                    self.push.leaves(unit.work)

    @precondition(lambda self: self.engine.in_flight)
    @rule(data=st.data())
    def a_call_comes_back(self, data):
        flying = self.engine.in_flight
        call = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
        error = data.draw(st.sampled_from([None, None, *ERRORS]))
        gone = data.draw(st.sets(st.sampled_from(KEYS), max_size=2))
        self.end(call, error, gone)

    def end(self, call, error=None, gone=frozenset()):
        for unit in call.units:
            self.end_work(unit.work, error, gone)
        self.engine.core.settle(call, 0.0, succeeded=error is None)

    def end_work(self, work, error, gone):
        if work.is_settled:
            return  # it left for the disk
        if error is not None:
            work.fail(error())
        elif isinstance(work, PartitionRequest):
            for key in {*work.keys} - {*self.directory.partitions} - gone:
                id_, queue_id = next(self.partition_ids), QUEUE_IDS[key[0]]
                self.directory.learn_partition(Partition(*key, queue_id, id_, QueueRules(queue_id)))
            work.succeed()
        elif isinstance(work, PendingWrite):
            for entry in work.entries:
                self.stored[work.partition.key].append(name_of(entry))
                entry[0].settle(entry[1], b"stored")
        else:
            outcomes = [ScheduleOutcome("failed", refusal=Refused()) for _ in work.items]
            work.finish(outcomes)

    @rule(queue=st.sampled_from(sorted(QUEUE_IDS)))
    def a_queue_is_deleted(self, queue):
        self.directory.forget_queue(QUEUE_IDS[queue])
        self.lives.update(key for key in KEYS if key[0] == queue)

    @rule(key=st.sampled_from(KEYS))
    def a_partition_is_forgotten(self, key):
        self.directory.partitions.pop(key, None)
        self.lives[key] += 1

    @rule(is_away=st.booleans(), is_broken=st.booleans())
    def the_outage_begins_or_ends(self, is_away, is_broken):
        self.disk.is_away, self.disk.is_broken = is_away, is_broken

    @rule()
    def the_disk_is_drained(self):
        for key, names in self.disk.kept.items():
            self.stored[key] += names
        self.disk.kept.clear()

    @invariant()
    def no_request_is_answered_twice(self):
        assert all(times == 1 for times in self.answers.values())

    @invariant()
    def partitions_keep_the_order_of_the_requests(self):
        for names in self.stored.values():
            order = [self.push_order[name] for name in names if name in self.push_order]
            for life in {each[0] for each in order}:
                its_order = [each for each in order if each[0] == life]
                assert all(before < after for before, after in pairwise(its_order))

    def teardown(self):
        while self.engine.in_flight or self.engine.core.weight:
            self.calls_leave()
            self.end(self.engine.in_flight.pop(0))
        self.the_disk_is_drained()
        self.partitions_keep_the_order_of_the_requests()
        assert self.accepted == {number for number, times in self.answers.items() if times == 1}
        assert not self.push.is_awaited(KEYS)


TestInterleavings = Interleavings.TestCase

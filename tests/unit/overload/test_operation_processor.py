"""What a processor does with operations that fail, and with a database that is away."""

from uuid import uuid4

import msgspec
import pytest

from skep.broker.ack.statuses import AckRow
from skep.broker.overload import processor as operation_processor
from skep.broker.overload.deferral import AckPayload, PushPayload
from skep.broker.overload.processor import (
    CLAIM_CALL,
    GONE,
    POSTPONE_CALL,
    PROCESS_ACKS_CALL,
    TIMED_OUT,
    OperationProcessor,
    ProcessorLimits,
)
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.transaction.settlement import Settled
from skep.db.access.errors import NotExecuted, OutcomeUnknown
from skep.model.errors import BadRequest, Unavailable

RETRIES_MAX = 3


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(operation_processor, "RECOVERY_S", 0)


def push_row(partition, name, *, retries=0, is_gone=False):
    payload = PushPayload([name.encode()], [b"{}"], [name], [None])
    packed = msgspec.msgpack.encode(payload)
    return (uuid4(), "push", "hive", str(partition), partition, retries, is_gone, packed)


def ack_operation(partition):
    row = AckRow(partition, "bees", uuid4(), 1, b"k" * 16, "completed", None, "lease", [0])
    packed = msgspec.msgpack.encode(AckPayload([row]))
    return (uuid4(), "ack_batch", "hive", str(partition), partition, 0, False, packed)


class Database:
    """Gives out what it was told, once, and notes what was postponed."""

    def __init__(self, *rows):
        self.rows = rows
        self.postponed = []
        self.acked = []
        self.ack_answers = []

    async def call(self, statement, *arguments):
        if statement == CLAIM_CALL:
            rows, self.rows = self.rows, ()
            return rows
        if statement == PROCESS_ACKS_CALL:
            self.acked.append(arguments)
            return self.ack_answers
        assert statement == POSTPONE_CALL
        id_, _, error, retries_max, _, _ = arguments
        self.postponed.append((id_, error, retries_max))
        return [("failed" if retries_max < 0 else "waiting",)]


class FakeSettler:
    """Stores everything but what it is told to fail for."""

    def __init__(self):
        self.calls = []
        self.poison = {}
        self.trouble = []
        self.refusal = None

    async def settle(self, _statement, leading, operations, *, is_repeated, with_places):
        assert is_repeated
        assert with_places
        names = [push.transaction_id for push in operations.pushes]
        self.calls.append(names)
        if self.trouble:
            raise self.trouble.pop(0)
        for name in names:
            if name in self.poison:
                raise self.poison[name]
        return Settled(self.refusal, 0, [], [], ())


class Announced:
    def __init__(self):
        self.queues = []

    def announce(self, queue_id, partition_count):
        self.queues.append((queue_id, partition_count))


def processor_of(database, settler, announcer=None):
    return OperationProcessor(
        database,
        settler,
        leases=LeaseMemory(bytes_max=1_000),
        announcer=announcer or Announced(),
        open_envelope=lambda envelope: envelope,
        limits=ProcessorLimits(timeout_s=60, retries_max=RETRIES_MAX),
    )


async def test_everything_that_was_claimed_is_carried_out_in_one_call():
    settler = FakeSettler()
    processor = processor_of(
        Database(push_row(1, "a"), push_row(1, "b"), push_row(2, "c")), settler
    )

    assert await processor.work() is True
    assert await processor.work() is False

    assert settler.calls == [["a", "b", "c"]]
    assert processor.completed_count == 3


async def test_only_the_guilty_operation_is_postponed_and_its_partition_waits():
    settler = FakeSettler()
    settler.poison["bad"] = BadRequest("no such thing")
    rows = [push_row(1, "a"), push_row(2, "bad"), push_row(2, "behind"), push_row(3, "c")]
    database = Database(*rows)

    await processor_of(database, settler).work()

    assert database.postponed == [(rows[1][0], "no such thing", RETRIES_MAX)]
    assert settler.calls[1:] == [["a"], ["bad", "behind"], ["bad"], ["c"]]


async def test_what_comes_before_the_guilty_one_of_a_partition_is_done():
    settler = FakeSettler()
    settler.poison["bad"] = BadRequest("no")
    database = Database(push_row(2, "good"), push_row(2, "bad"))

    await processor_of(database, settler).work()

    assert settler.calls == [["good", "bad"], ["good"]]
    assert database.postponed == []


@pytest.mark.parametrize("trouble", [NotExecuted("away"), OutcomeUnknown("cut")])
async def test_a_database_that_is_away_for_a_moment_is_no_failure_of_the_operation(trouble):
    settler = FakeSettler()
    settler.trouble = [trouble]
    database = Database(push_row(1, "a"))
    processor = processor_of(database, settler)

    await processor.work()

    assert settler.calls == [["a"], ["a"]]
    assert (processor.completed_count, database.postponed) == (1, [])


async def test_a_database_that_stays_away_leaves_the_claim_to_run_out():
    settler = FakeSettler()
    settler.trouble = [NotExecuted("away")] * 100
    database = Database(push_row(1, "a"))

    with pytest.raises(Unavailable):
        await processor_of(database, settler).work()

    assert database.postponed == []


async def test_operations_in_other_hands_are_left_to_them():
    settler = FakeSettler()
    settler.refusal = "claim_lost"
    database = Database(push_row(1, "a"))
    processor = processor_of(database, settler)

    await processor.work()

    assert (processor.completed_count, database.postponed) == (0, [])


async def test_the_hopeless_are_given_up_and_the_others_go_on():
    settler = FakeSettler()
    gone, late = push_row(1, "a", is_gone=True), push_row(2, "b", retries=RETRIES_MAX + 1)
    database = Database(gone, late, push_row(3, "c", retries=RETRIES_MAX))
    processor = processor_of(database, settler)

    await processor.work()

    assert database.postponed == [(gone[0], GONE, -1), (late[0], TIMED_OUT, RETRIES_MAX)]
    assert settler.calls == [["c"]]
    assert processor.failed_count == 1


async def test_a_payload_that_cannot_be_read_is_a_failure_of_its_operation():
    settler = FakeSettler()
    broken = (*push_row(1, "a")[:-1], b"\xc1")
    database = Database(broken)

    await processor_of(database, settler).work()

    ((id_, error, _),) = database.postponed
    assert id_ == broken[0]
    assert error


async def test_acks_wake_those_who_wait():
    announcer = Announced()
    rows = [ack_operation(1), ack_operation(2)]
    database = Database(*rows)
    database.ack_answers = [
        (1, "acked", 7, "hive", "1", True, True),
        (2, "acked", 7, "hive", "2", True, True),
    ]

    await processor_of(database, FakeSettler(), announcer).work()

    assert announcer.queues == [(7, 2)]
    ((ids, _, numbers, partitions, *_),) = database.acked
    assert ids == [row[0] for row in rows]
    assert (numbers, partitions) == ([1, 2], [1, 2])


async def test_acks_in_other_hands_are_left_to_them():
    database = Database(ack_operation(1))
    database.ack_answers = [(None,) * 7]
    processor = processor_of(database, FakeSettler())

    await processor.work()

    assert (processor.completed_count, database.postponed) == (0, [])


async def test_a_processor_stops_when_asked():
    processor = processor_of(Database(), FakeSettler())
    processor.start()
    processor.hear_of_operations()

    await processor.stop()

"""Redrive jobs as the broker works them off: in batches, resumable, and failing closed."""

from uuid import UUID

import pytest

from skep.broker.dead_letters.letters import DeadLetters, LetterFilter, LetterGone, Target
from skep.broker.dead_letters.redrive import Redrives
from skep.db.access.functions import Functions
from skep.db.access.slots import ONE_OFF, Slots
from skep.model.errors import Refused
from tests.sql.support.letters import bury, letter_ids, transaction_ids
from tests.sql.support.log import QUEUE_MODE
from tests.sql.support.waiting import eventually


class Ears:
    """Hears what is announced."""

    def __init__(self):
        self.heard = []

    def announce(self, queue_id, partition_count):
        self.heard.append((queue_id, partition_count))


class Desk:
    """The parts of a broker that move dead letters."""

    def __init__(self, slots, *, batch=2, **hooks):
        self.ears = Ears()
        sql = Functions(slots)
        self.letters = DeadLetters(sql, self.ears, hash_seed=1, **hooks)
        self.redrives = Redrives(sql, self.letters, batch=batch)

    async def until_ended(self, job):
        async def look():
            found = await self.redrives.describe(UUID(job.id))
            return found if found.state != "running" else None

        return await eventually(look)


@pytest.fixture
def slots(arun, log, log_url):
    slots = Slots(log_url, size=2, server_settings=ONE_OFF, statement_timeout_s=20)
    arun(slots.open())
    yield slots
    arun(slots.close())


@pytest.fixture
def desk(arun, slots):
    desk = Desk(slots)
    yield desk
    arun(desk.redrives.stop())


async def test_a_job_is_worked_off_in_batches_and_in_order(desk, log):
    ids = await bury(log, *"abcde")
    partition, _ = await log.partition()

    job = await desk.redrives.begin(LetterFilter(queue="hive"), Target())
    ended = await desk.until_ended(job)

    assert (ended.state, ended.total, ended.moved) == ("done", 5, 5)
    moved = (await transaction_ids(log, partition))[5:]
    assert moved == [f"dlq:{id_}" for id_ in ids]
    queue_id = await log.value("select id from skep.queue")
    assert desk.ears.heard == [(queue_id, 1)] * 3, "three batches of two"


async def test_a_job_left_behind_is_taken_over_where_it_stopped(desk, log, slots):
    ids = await bury(log, *"abcd")
    partition, _ = await log.partition()
    job = await desk.redrives.begin(LetterFilter(), Target(), limit=1)
    await desk.until_ended(job)
    await log.execute(
        "update skep.redrive set state = 'running', letters_max = null, finished_at = null,"
        " owner = gen_random_uuid(), progressed_at = clock_timestamp() - interval '2 minutes'"
        " where id = $1",
        UUID(job.id),
    )

    heir = Desk(slots)
    assert UUID(job.id) in await heir.redrives.take_over()
    ended = await heir.until_ended(job)

    assert (ended.state, ended.moved) == ("done", 4)
    assert (await transaction_ids(log, partition))[4:] == [f"dlq:{id_}" for id_ in ids]


async def test_an_owner_that_lost_its_job_stops(desk, log):
    ids = await bury(log, "a")
    job = await desk.redrives.begin(LetterFilter(queue="none"), Target())
    await desk.until_ended(job)
    await log.execute(
        "update skep.redrive set state = 'running', filter = '{}', owner = gen_random_uuid()"
        " where id = $1",
        UUID(job.id),
    )

    await desk.redrives.work_off(UUID(job.id))

    assert await letter_ids(log) == ids
    await log.execute("delete from skep.redrive")


async def test_a_cancelled_job_cannot_go_on_and_cancelling_twice_is_harmless(desk, log):
    job = await desk.redrives.begin(LetterFilter(queue="none"), Target())
    await desk.until_ended(job)
    await log.execute("update skep.redrive set state = 'running' where id = $1", UUID(job.id))

    cancelled = await desk.redrives.cancel(UUID(job.id))
    again = await desk.redrives.cancel(UUID(job.id))

    assert cancelled.state == again.state == "cancelled"


async def test_duplicates_are_counted_and_do_not_stop_a_job(desk, log):
    first, second, third = await bury(log, "a", "b", "c")
    ended = await desk.until_ended(await desk.redrives.begin(LetterFilter(ids=(second,)), Target()))
    assert ended.moved == 1
    # As if the letter were still there, which takes a producer that pushes under such an id.
    await log.execute(
        "insert into skep.dead_letter overriding system value select id, partition_id, group_id,"
        " queue_id, message_offset, transaction_id,"
        ' \'{"transactionId":"b","data":1}\', error, failures, created_at, failed_at'
        " from skep.redriven_letter where id = $1",
        second,
    )

    ended = await desk.until_ended(await desk.redrives.begin(LetterFilter(), Target()))

    assert (ended.state, ended.moved, ended.duplicates) == ("done", 2, 1)
    assert await letter_ids(log) == [second]
    assert {first, third}.isdisjoint(await letter_ids(log))


async def test_a_queue_that_encrypts_gets_nothing_in_clear(desk, log):
    ids = await bury(log, "a")
    await log.configure("secret", encryption_enabled=True)

    job = await desk.redrives.begin(LetterFilter(), Target(queue="secret"))
    ended = await desk.until_ended(job)

    assert (ended.state, ended.moved) == ("failed", 0)
    assert "encrypted" in ended.error
    assert await letter_ids(log) == ids
    with pytest.raises(Refused):
        await desk.letters.replay(ids[0], Target(queue="secret"))


async def test_what_was_encrypted_is_opened_renamed_and_sealed_again(slots, log):
    [letter] = await bury(log, "a")
    await log.execute(
        """update skep.dead_letter set envelope = '{"enc":"k","expiresAt":"2026-01-01T00:00:00Z",'
        '"transactionId":"a","traceId":null,"producerSub":"me","headers":{"h": 1},"data":"c"}'"""
    )
    seen = []

    def open_envelope(envelope):
        seen.append(envelope)
        return envelope.replace(b'"enc":"k",', b"").replace(b'"data":"c"', b'"data":"open"')

    def seal_envelope(envelope):
        seen.append(envelope)
        return b'{"enc":"k2",' + envelope[1:].replace(b'"open"', b'"cc"')

    desk = Desk(slots, open_envelope=open_envelope, seal_envelope=seal_envelope)
    await desk.letters.replay(letter, Target())

    name = f"dlq:{letter}".encode()
    assert seen[1] == (
        b'{"transactionId":"%b","traceId":null,"producerSub":"me","headers":{"h": 1},"data":"open"}'
        % name
    )
    body = await log.value("select body from skep.segment order by first desc limit 1")
    assert body == (
        b'[{"enc":"k2","transactionId":"%b","traceId":null,"producerSub":"me","headers":{"h": 1},'
        b'"data":"cc"}]' % name
    )


async def test_a_letter_deleted_by_someone_else_is_gone_for_a_replay(desk, log):
    [letter] = await bury(log, "a")
    await log.execute("delete from skep.dead_letter")

    with pytest.raises(LetterGone):
        await desk.letters.replay(letter, Target())


async def test_a_letter_of_a_partition_that_is_gone_goes_to_the_default_one(desk, log):
    [letter] = await bury(log, "a", group=QUEUE_MODE)
    await log.execute("delete from skep.cursor; delete from skep.partition")

    replayed = await desk.letters.replay(letter, Target())

    assert (replayed.result, replayed.partition) == ("moved", "Default")


async def test_a_letter_of_a_queue_that_is_being_deleted_is_gone(desk, log):
    [letter] = await bury(log, "a")
    await log.execute(
        "delete from skep.cursor; delete from skep.partition; delete from skep.consumer_group;"
        "delete from skep.queue"
    )

    with pytest.raises(LetterGone):
        await desk.letters.replay(letter, Target())

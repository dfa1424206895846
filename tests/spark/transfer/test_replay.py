"""Replays: from both tiers, in order, and never twice."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from skep.model.encryption import EncryptionKey, KeyRing, NoEncryptionKey
from skep.model.errors import BadRequest, NotFound, Refused
from skep.spark.runtime.tasks import run_on_spark
from skep.spark.transfer.replay import Replay, ReplayPlan
from skep.spark.transfer.single_write import JobFailed
from tests.spark.support.archives import Shop
from tests.spark.support.logs import envelope

pytestmark = pytest.mark.slow

KEY = "11" * 32
MESSAGES = """
  select p.name, m.envelope::text
  from skep.segment s
  join skep.partition p on p.id = s.partition_id
  join skep.queue q on q.id = s.queue_id
  cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
    with ordinality m(envelope, position)
  where q.name = $1
  order by p.name, s.first, m.position
"""


@pytest.fixture
def shop(database_url, tmp_path, writer):
    return Shop(database_url, tmp_path / "lake", writer)


@pytest.fixture
def replay(spark, database_url):
    """Make a replay of `orders` into `again`, of the last day unless told otherwise."""
    now = datetime.now(UTC)

    def make(**choices):
        choices.setdefault("since", now - timedelta(days=1))
        choices.setdefault("until", datetime.now(UTC))
        plan = {"url": database_url, "queue": "orders", "into": "again", **choices}
        return Replay(lambda: spark, ReplayPlan(**plan))

    return make


def stored(writer, queue="again"):
    """Return what a queue holds: (partition, envelope), in order."""
    return [(partition, json.loads(text)) for partition, text in writer.rows(MESSAGES, queue)]


def payloads(writer, queue="again"):
    return [(partition, found["data"]) for partition, found in stored(writer, queue)]


def test_both_tiers_are_replayed_in_the_order_of_each_partition(spark, shop, replay, writer):
    for number in range(30):
        shop.push_old(number, partition=f"p{number % 3}")
    shop.read_all()
    shop.archive(run_on_spark(lambda: spark))
    for number in range(30, 60):
        writer.push(number, partition=f"p{number % 3}")
    shop.read_all()
    assert shop.live() == list(range(30, 60))

    done = replay().run()

    assert (done.messages, done.duplicates, done.is_repeated) == (60, 0, False)
    assert payloads(writer) == [
        (f"p{partition}", n) for partition in range(3) for n in range(partition, 60, 3)
    ]


def test_times_and_a_condition_choose_what_is_replayed_and_counting_writes_nothing(
    shop, replay, writer
):
    for hours in (5, 4, 3, 2):
        shop.push_old({"hours": hours}, {"hours": hours, "vip": True}, hours=hours)
    now = datetime.now(UTC)
    span = {"since": now - timedelta(hours=4.5), "until": now - timedelta(hours=2.5)}
    is_vip = "get_json_object(payload, '$.vip') = 'true'"

    counted = replay(**span).count()
    chosen = replay(**span, where=is_vip).count()

    assert (counted.messages, counted.partitions, chosen.messages) == (4, 1, 2)
    assert span["since"] < counted.first.replace(tzinfo=UTC) < span["until"]
    assert stored(writer) == []
    assert writer.value("select count(*) from skep.sink") == 0

    replay(**span, where=is_vip).run()

    assert [data["hours"] for _, data in payloads(writer)] == [4, 3]


def test_the_same_replay_adds_nothing_and_another_name_does_it_again(replay, writer):
    writer.push(1, 2)
    until = datetime.now(UTC)
    same = {"since": until - timedelta(hours=1), "until": until}

    first, second = replay(**same).run(), replay(**same).run()
    named = replay(**same, name="once more").run()

    assert (first.messages, first.is_repeated) == (2, False)
    assert (second.messages, second.is_repeated) == (2, True)
    assert named.messages == 2
    assert [data for _, data in payloads(writer)] == [1, 2, 1, 2]


def test_transaction_ids_are_the_same_for_every_attempt_even_if_its_record_is_lost(replay, writer):
    writer.push(1, 2)
    until = datetime.now(UTC)
    same = {"since": until - timedelta(hours=1), "until": until}
    replay(**same).run()
    writer.execute("delete from skep.sink")

    again = replay(**same).run()

    assert (again.messages, again.duplicates) == (0, 2)
    assert [data for _, data in payloads(writer)] == [1, 2]


def test_a_queue_is_replayed_into_itself_with_headers_and_bytes_kept(replay, writer):
    writer.push_envelopes(envelope('{"a":  "\\u0000"}', "tx-a", headers={"h": "x"}))
    replay(into="orders").run()

    (_, before), (_, after) = stored(writer, "orders")

    assert after["transactionId"].startswith("replay:")
    assert after["headers"] == before["headers"] == {"h": "x"}
    bodies = [text for _, text in writer.rows(MESSAGES, "orders")]
    assert all('"data":{"a":  "\\u0000"}' in body for body in bodies)


def test_kept_ids_leave_out_what_the_target_knows(replay, writer):
    writer.push_envelopes(envelope("1", "tx-1"), envelope("2", "tx-2"))
    until = datetime.now(UTC)
    first = replay(keeps_ids=True, where="transaction_id = 'tx-1'", until=until).run()

    both = replay(keeps_ids=True, until=until).run()

    assert (first.messages, both.messages, both.duplicates) == (1, 1, 1)
    assert [found["transactionId"] for _, found in stored(writer)] == ["tx-1", "tx-2"]


def test_nothing_to_replay_is_no_error(replay, writer):
    writer.push(1)

    done = replay(where="false").run()

    assert (done.messages, stored(writer)) == (0, [])


def test_sealed_messages_need_a_key_and_stay_sealed_unless_somebody_says_otherwise(
    replay, writer, monkeypatch
):
    monkeypatch.delenv("SKEP_ENCRYPTION_KEYS", raising=False)
    ring = KeyRing([EncryptionKey("k1", bytes.fromhex(KEY))])
    writer.push_envelopes(ring.seal_envelope(envelope('"secret"')))
    writer.execute("update skep.queue set encryption_enabled = true where name = 'orders'")
    keys = {"encryptionKeys": f"k1:{KEY}"}

    with pytest.raises(NoEncryptionKey, match="orders is encrypted, and there is no key"):
        replay()
    with pytest.raises(Refused, match="in the clear"):
        replay(keys=keys)
    replay(keys=keys, may_decrypt=True).run()
    replay(keys=keys, into="orders").run()

    assert payloads(writer) == [("Default", "secret")]
    assert all(found["enc"] == "k1" for _, found in stored(writer, "orders"))


def test_a_sealed_target_needs_a_key_too(replay, writer):
    writer.push(1)
    writer.partition("again")
    writer.execute("update skep.queue set encryption_enabled = true where name = 'again'")

    with pytest.raises(NoEncryptionKey, match="again is encrypted"):
        replay()


def test_what_makes_no_sense_is_told_in_one_line(replay, writer):
    writer.push(1)
    now = datetime.now(UTC)

    with pytest.raises(BadRequest, match="must be before"):
        replay(since=now, until=now)
    with pytest.raises(BadRequest, match="lies in the future"):
        replay(until=now + timedelta(hours=1))
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        replay(queue="nowhere")
    with pytest.raises(BadRequest, match="1 to 100 characters"):
        replay(name="")
    for where in ("no_such_column = 1", "payload ==="):
        with pytest.raises(BadRequest) as refusal:
            replay(where=where).run()
        assert "\n" not in refusal.value.message


def test_a_message_that_the_target_refuses_ends_it_or_becomes_a_dead_letter(replay, writer):
    writer.push({"id": 1}, "no object")
    writer.partition("again")
    schema = '{"type": "object"}'
    writer.execute(f"update skep.queue set json_schema = '{schema}' where name = 'again'")
    until = datetime.now(UTC)

    with pytest.raises(JobFailed, match="at least 1 rows cannot be stored") as failure:
        replay(until=until).run()
    assert "\n" not in failure.value.message
    assert stored(writer) == []
    done = replay(until=until, on_error="dead-letter").run()

    assert (done.messages, done.rejected) == (1, 1)
    assert payloads(writer) == [("Default", {"id": 1})]

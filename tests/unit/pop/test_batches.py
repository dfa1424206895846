"""Messages cut out of their segments: which are left out, and what each says of itself."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from skep.broker.directory import Group
from skep.broker.pop.batches import Batch, EnvelopeReader, cut_segment
from skep.broker.pop.lease_memory import KEY_BYTES
from skep.broker.timestamps import wire_time
from skep.model.ids import message_id

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EXPIRED = '{"expiresAt":"2026-01-01T11:00:00Z","transactionId":"t","data":1}'


def envelope(name):
    return json.dumps({"transactionId": name, "traceId": None, "data": {"name": name}})


def segment(
    *envelopes,
    first=1,
    taken=None,
    passed_over=None,
    partition_id=7,
    name="partition",
    counts=None,
):
    taken_from, taken_to = taken or (first - 1, first - 1 + len(envelopes))
    keys = b"".join(n.to_bytes(KEY_BYTES, "big") for n in range(len(envelopes)))
    body = f"[{','.join(envelopes)}]".encode()
    row = (1, partition_id, name, taken_from, taken_to, 3, first, NOON, keys, body)
    return cut_segment((*row, passed_over, False, counts))


def batch_of(*segments):
    batch = Batch(Group("hive", "bees", 1, 2), b'"lease"')
    reader = EnvelopeReader(clock=lambda: NOON)
    for each in segments:
        batch.add(each, reader)
    return batch


def messages(batch):
    return [json.loads(message) for message in batch.messages]


def test_a_message_says_where_it_comes_from():
    [message] = messages(batch_of(segment(envelope("a"), first=5)))

    assert message == {
        "id": message_id(7, 5),
        "transactionId": "a",
        "traceId": None,
        "data": {"name": "a"},
        "queue": "hive",
        "partition": "partition",
        "partitionId": message_id(7, 0),
        "leaseId": "lease",
        "consumerGroup": "bees",
        "createdAt": wire_time(NOON).decode(),
        "deliveryAttempt": 3,
        "retryCount": 0,
    }


def test_each_message_tells_its_own_deliveries_and_failures():
    counts = [5, 4, 0, 6, 4, 3, 9, 2, 0, 12, 1, 0]
    named = [envelope("a") for _ in range(7)]

    delivered = messages(batch_of(segment(*named, first=4, passed_over=[6], counts=counts)))

    assert [(each["deliveryAttempt"], each["retryCount"]) for each in delivered] == [
        *[(4, 0)] * 2,
        *[(2, 0)] * 3,
        (1, 0),
    ]


@given(
    states=st.lists(st.sampled_from(["plain", "null", "done", "expired"]), min_size=1, max_size=8),
    bounds=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_what_is_taken_and_needs_delivery_is_delivered_and_the_rest_accounted_for(states, bounds):
    stored = {
        "plain": envelope("a"),
        "null": "null",
        "done": envelope("a"),
        "expired": EXPIRED,
    }
    offsets = range(11, 11 + len(states))
    taken_from, taken_to = 10 + min(bounds), 10 + max(bounds)
    taken = {
        offset: state
        for offset, state in zip(offsets, states, strict=True)
        if taken_from < offset <= taken_to
    }
    done = [offset for offset, state in taken.items() if state == "done"]

    batch = batch_of(
        segment(
            *(stored[state] for state in states),
            first=11,
            taken=(taken_from, taken_to),
            passed_over=done or None,
        )
    )

    delivered = [offset for offset, state in taken.items() if state == "plain"]
    undelivered = [(7, offset) for offset, state in taken.items() if state in {"null", "expired"}]
    assert [message["id"] for message in messages(batch)] == [message_id(7, n) for n in delivered]
    assert batch.left_out == undelivered
    assert len(batch.partitions) == bool(delivered)


def test_partitions_that_gave_messages_are_counted_once_each():
    batch = batch_of(
        segment(envelope("a"), partition_id=7),
        segment(envelope("b"), first=2, partition_id=7),
        segment("null", partition_id=8),
        segment(envelope("c"), partition_id=9, name="last"),
    )

    assert [json.loads(name) for name, _ in batch.partitions] == ["partition", "last"]


def test_the_keys_of_what_was_taken_are_told():
    taken = segment("1", "2", "3", "4", first=1, taken=(1, 3))

    assert taken.low == 2
    assert taken.keys == (1).to_bytes(KEY_BYTES, "big") + (2).to_bytes(KEY_BYTES, "big")

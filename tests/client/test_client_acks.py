"""Acknowledgments put together as bytes say what encoding each would say."""

import json
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from skep.client import COMPLETED, failed
from skep.client.verdicts import ack_body, ack_text, completed_text

NAMES = st.text(st.sampled_from('",\\ab\n\x00é:[]{}'), max_size=6) | st.text(max_size=9)


class Message(NamedTuple):
    id: str
    transaction_id: str
    partition_id: str
    lease_id: str


@given(st.lists(st.tuples(NAMES, st.sampled_from("pq")), min_size=1, max_size=8), NAMES)
def test_completed_messages_are_acknowledged_as_one_by_one(named, lease_id):
    messages = [Message(str(number), *names, lease_id) for number, names in enumerate(named)]

    together = completed_text(messages)

    each = b",".join(ack_text(message, COMPLETED) for message in messages)
    assert together == each


@given(NAMES, NAMES)
def test_the_body_is_what_the_broker_reads(name, group):
    items = ack_text(Message("m", name, "p", "l"), failed("why"))

    assert json.loads(ack_body(items, group)) == {
        "acknowledgments": [
            {
                "messageId": "m",
                "transactionId": name,
                "partitionId": "p",
                "status": "failed",
                "leaseId": "l",
                "error": "why",
            }
        ],
        "consumerGroup": group,
    }

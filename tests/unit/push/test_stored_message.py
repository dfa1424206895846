"""Envelopes are taken apart and renamed without a look at the payload."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.messages.stored_message import (
    is_encrypted,
    read_envelope,
    read_head,
    refuse_to_seal,
    with_transaction_id,
)
from skep.model.errors import Refused

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def spell(*, transaction_id, marks=b"", headers=None, data=b"1"):
    middle = b"" if headers is None else b'"headers":%b,' % json.dumps(headers).encode()
    return b'{%b"transactionId":%b,"traceId":null,"producerSub":"me",%b"data":%b}' % (
        marks,
        json.dumps(transaction_id).encode(),
        middle,
        data,
    )


@given(st.text(), st.text(), st.none() | st.dictionaries(st.text(), st.integers()), json_values)
def test_only_the_transaction_id_and_the_marks_change(before, after, headers, value):
    data = json.dumps(value, indent=1).encode()
    marks = b'"enc":"k","expiresAt":"2026-01-01T00:00:00Z",'
    envelope = spell(transaction_id=before, marks=marks, headers=headers, data=data)

    renamed = with_transaction_id(envelope, after)

    assert renamed.endswith(b',"data":' + data + b"}")
    content = json.loads(renamed)
    expected = {"transactionId": after, "traceId": None, "producerSub": "me", "data": value}
    assert content == expected | ({} if headers is None else {"headers": headers})


@pytest.mark.parametrize("data", [rb'"\u0000"', b'{"a":1,"a":2}', b"1.50", b"null"])
def test_a_payload_is_read_byte_for_byte(data):
    content = read_envelope(spell(transaction_id="t", data=data))

    assert bytes(content.data) == data
    assert (content.transaction_id, content.producer_sub) == ("t", "me")


def test_only_the_mark_in_front_tells_that_a_payload_is_encrypted():
    assert is_encrypted(spell(transaction_id="t", marks=b'"enc":"k",'))
    assert not is_encrypted(spell(transaction_id="t", data=b'{"enc":"k"}'))


def test_without_a_key_nothing_is_sealed():
    with pytest.raises(Refused):
        refuse_to_seal(b"{}")


def test_the_head_is_read_without_a_look_at_the_data():
    envelope = b'{"transactionId":"x","traceId":"t","producerSub":null,"data":not even JSON}'

    head = read_head(envelope)

    assert (head.transaction_id, head.trace_id, bytes(head.data)) == ("x", "t", b"null")

"""What a search of headers and payloads takes for a match."""

import pytest

from skep.broker.messages.contents import Contents
from skep.model.errors import BadRequest, Refused

ENVELOPE = (
    b'{"transactionId":"t","traceId":null,"producerSub":null,'
    b'"headers":{"tenant":"acme", "x-try":"2"},'
    b'"data":{"customer":{"id":7,"key":"7","is-new":true},"items":[{"sku":"A-1"}],"total":100.5}}'
)


def matches(*, header=None, payload=None, envelope=ENVELOPE):
    return Contents.parse(header, payload).are_in(envelope, bytes)


@pytest.mark.parametrize("header", ["tenant", "tenant=acme", " tenant = acme ", "x-try=2"])
def test_a_header_matches_by_name_or_by_value(header):
    assert matches(header=header)


@pytest.mark.parametrize("header", ["Tenant", "tenant=", "tenant=acm", "id=7"])
def test_another_header_does_not_match(header):
    assert not matches(header=header)


@pytest.mark.parametrize(
    "payload",
    [
        "A-1",
        "$.customer",
        "$.customer.id = 7",
        "$.customer.id=7.0",
        "$.customer.key = 7",
        '$["customer"].key = "7"',
        "$.customer.is-new = true",
        "$.customer.id != 8",
        "$.items[0].sku = A-1",
        "$.items[0].sku ~ A-",
        '$.items = [{"sku": "A-1"}]',
        "$.items[0].sku >= A",
        "$.total > 100",
        "$.total <= 100.5",
    ],
)
def test_a_payload_matches(payload):
    assert matches(payload=payload)


@pytest.mark.parametrize(
    "payload",
    [
        "A-2",
        "$.client",
        "$.items.sku",
        "$.items[1]",
        "$.customer[0]",
        '$.customer.id = "7"',
        "$.customer.is-new = 1",
        "$.customer.is-new > 0",
        "$.customer.id > A",
        "$.customer.id ~ 7",
        "$.client != 7",
        "$.total < 100",
    ],
)
def test_another_payload_does_not_match(payload):
    assert not matches(payload=payload)


def test_header_and_payload_must_both_match():
    assert matches(header="tenant=acme", payload="A-1")
    assert not matches(header="tenant=acme", payload="A-2")
    assert not matches(header="tenant=other", payload="A-1")


def test_what_cannot_be_read_does_not_match():
    def refuse(_):
        raise Refused("no key")

    assert not Contents.parse(None, "A-1").are_in(ENVELOPE, refuse)
    assert not matches(payload="$.n", envelope=ENVELOPE.replace(b"100.5", b"1e400"))


@pytest.mark.parametrize(
    "asked", [{"payload": "$customer"}, {"payload": "$.a is 7"}, {"header": "=x"}]
)
def test_what_is_no_condition_is_refused(asked):
    with pytest.raises(BadRequest):
        Contents.parse(asked.get("header"), asked.get("payload"))


def test_nothing_asked_for_is_no_condition():
    assert Contents.parse("", None) is None

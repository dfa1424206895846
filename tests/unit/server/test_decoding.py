"""Request bodies: every way of being wrong has its own words."""

import msgspec
import pytest

from skep.model.errors import BadRequest
from skep.model.wire import LoosePushItem, PushBody
from skep.server.hot.decoding import decode_body
from skep.server.hot.pushed_items import ItemDecoder
from skep.telemetry.meters import Meters

PUSH = msgspec.json.Decoder(PushBody)
WORDS = {
    ".items": "items array is required",
    ".items[].queue": "Queue must be a string",
}


def refusal(body, decoder=PUSH, words=None):
    with pytest.raises(BadRequest) as refused:
        decode_body(decoder, body, WORDS if words is None else words)
    return refused.value.message


def test_a_body_of_the_right_shape_is_decoded():
    body = decode_body(PUSH, b'{"items":[{"queue":"hive","payload":{"n": 1}}]}', WORDS)

    assert [(item.queue, bytes(item.payload)) for item in body.items] == [("hive", b'{"n": 1}')]


def test_members_nobody_asked_for_are_ignored():
    assert decode_body(PUSH, b'{"items":[],"newer":true}', WORDS).items == []


def test_text_beyond_ascii_is_decoded():
    body = decode_body(PUSH, '{"items":[{"queue":"Bienenstöcke 🐝"}]}'.encode(), WORDS)

    assert body.items[0].queue == "Bienenstöcke 🐝"


def test_an_empty_body_is_said_to_be_empty():
    assert refusal(b"") == "the request body is empty; send a JSON object"


def test_a_body_that_is_not_utf8_is_refused_with_the_place():
    assert refusal(b'{"items":[{"queue":"\xff"}]}') == "the body is not valid UTF-8 (byte 20)"


@pytest.mark.parametrize(
    "body", [b"{", b"nonsense", b'{"items":[}', b'{"items":[]} {}', b"\0", b'{"items":[NaN]}']
)
def test_a_body_that_is_not_json_is_said_to_be_so(body):
    assert refusal(body).startswith("the body is not valid JSON: ")


@pytest.mark.parametrize("escaped", [rb"\ud83d", rb"\udc1d", rb"\ud83dx", rb"\ud83d\ud83d"])
def test_half_of_a_surrogate_pair_is_named(escaped):
    body = b'{"items":[{"queue":"%b"}]}' % escaped

    assert refusal(body) == "the body is not valid JSON: it escapes half of a surrogate pair"


def test_a_whole_surrogate_pair_is_fine():
    body = decode_body(PUSH, rb'{"items":[{"queue":"\ud83d\udc1d"}]}', WORDS)

    assert body.items[0].queue == "🐝"


def test_a_bottomless_body_is_refused():
    depth = 100_000
    body = b'{"items":[{"queue":"hive","payload":%b%b}]}' % (b"[" * depth, b"]" * depth)

    assert refusal(body) == "the body is nested too deeply"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "items array is required"),
        (b'{"items":{}}', "items array is required"),
        (b'{"items":[{}]}', "Queue must be a string"),
        (b'{"items":[{"queue":"a"},{"queue":7}]}', "Queue must be a string"),
    ],
)
def test_a_wrong_member_is_refused_in_the_words_of_the_wire_and_with_the_reason(body, words):
    message = refusal(body)

    assert message.startswith(f"{words} (")
    assert message.endswith(")")


def test_a_missing_member_of_the_body_itself_is_found_by_its_name():
    message = refusal(b"{}")

    assert message.startswith("items array is required (")


@pytest.mark.parametrize("body", [b"[]", b"7", b'"text"', b"null"])
def test_a_body_of_another_shape_is_refused_with_what_was_expected(body):
    assert "object" in refusal(body)


def test_without_words_of_the_wire_the_reason_stands_alone():
    message = refusal(b'{"items":[{}]}', words={})

    assert "missing required field `queue`" in message
    assert not message.endswith(")")


class TestPushedItems:
    def decoder(self, *, is_strict=False):
        return ItemDecoder(Meters(), is_strict=is_strict)

    def test_items_with_a_payload_and_known_fields_are_not_loose(self):
        decoder = self.decoder()

        (item,) = decoder.push(b'{"items":[{"queue":"q","payload":[1]}],"bufferMs":5}')

        assert not isinstance(item, LoosePushItem)
        assert [item.queue, bytes(item.payload), item.headers] == ["q", b"[1]", None]

    def test_only_the_items_to_blame_are_loose(self):
        decoder = self.decoder()

        exact, loose, empty = decoder.push(
            b'{"items":[{"queue":"q","payload":1},{"queue":"q","payload":2,"x":0,"y":0},'
            b'{"queue":"q","headers":{"a":1}}]}'
        )

        assert not isinstance(exact, LoosePushItem)
        assert [loose.unknown, bytes(loose.payload), loose.is_refused] == [["x", "y"], b"2", False]
        assert [empty.unknown, bytes(empty.payload), empty.headers] == [[], b"null", {"a": 1}]
        assert [decoder.meters.unknown_fields, decoder.meters.missing_payloads] == [2, 1]

    @pytest.mark.parametrize("body", [b"[%b]", b' {"operations":[%b],"requiredLeases":[]}'])
    def test_operations_of_a_transaction_are_looked_at_one_by_one(self, body):
        operations = (
            b'{"type":"ack","transactionId":"t","partitionId":"p","x":1},'
            b'{"type":"push","queue":"q","data":1},{"type":"push","queue":"q"},'
            b'{"type":"push","items":[{"queue":"q","payload":1},{"queue":"q","x":1}]}'
        )

        decoded = self.decoder(is_strict=True).transaction(body % operations)

        _, flat, empty, many = decoded.operations
        assert flat.items is None or not isinstance(flat.items[0], LoosePushItem)
        assert empty.items[0].refusal.startswith("payload is missing")
        assert [isinstance(each, LoosePushItem) for each in many.items] == [False, True]
        assert many.items[1].is_refused

"""The bytes on the wire: requests rendered ahead of time, answers parsed no further than needed.

The generator shares two cores with what it measures, so a request is one `bytes % tuple`: head,
content length, payloads and names are rendered once, and only the partition number, two parts of
the transaction id and (for end-to-end latency) the send time are filled in. All holes have a fixed
width, which is what lets the content length be rendered too.

Nothing here touches a socket.
"""

import math
import random
import re
import string
from typing import NamedTuple

import msgspec

from benchmarks.errors import UnexpectedFraming
from benchmarks.plan import PushRole

_LETTERS = string.ascii_letters + string.digits
_STAMP = re.compile(rb'"sentUs":"(\d+)"')
_HEAD_END = b"\r\n\r\n"
# Odd, so that multiplying by it scatters numbers over 32 bits and never joins two.
_SCATTER = 0x9E37_79B1
# Enough different payloads that a segment holds no two equal ones.
_DISTINCT_ITEMS = 10_000


class Answer(NamedTuple):
    """One HTTP response."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class AnswerReader:
    """Cut one response at a time out of the bytes of a keep-alive connection."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> Answer | None:
        """Take the next bytes; return the answer once it is complete.

        Raises:
            UnexpectedFraming: chunked encoding, or bytes after the end of the answer. At most one
                request is in flight on a connection, so nothing may follow.
        """
        if self._pending:
            data = self._pending + data
        head_length = data.find(_HEAD_END)
        if head_length < 0:
            self._pending = data
            return None
        expected = head_length + len(_HEAD_END) + _content_length(data[:head_length])
        if len(data) < expected:
            self._pending = data
            return None
        if len(data) > expected:
            raise UnexpectedFraming(f"{len(data) - expected} bytes after the end of the answer")
        self._pending = b""
        return Answer(int(data[9:12]), data[head_length + len(_HEAD_END) :])


def _content_length(head: bytes) -> int:
    head = head.lower()
    start = head.find(b"\r\ncontent-length:")
    if start >= 0:
        end = head.find(b"\r\n", start + 2)
        return int(head[start + 17 : end if end >= 0 else len(head)])
    if b"\r\ntransfer-encoding:" in head:
        raise UnexpectedFraming("chunked answer")
    return 0


class PushTemplate:
    """A push request of fixed size that is filled with fresh numbers each time it is sent."""

    __slots__ = ("_arguments", "_first_id", "_has_stamp", "_request", "item_count")

    def __init__(
        self,
        *,
        host: str,
        queue: str,
        item_count: int,
        payload_bytes: int,
        seed: int,
        stamped: bool,
    ) -> None:
        rng = random.Random(seed)
        # A UUID as most clients send it, random where an index or a sort would look first.
        middle = f"{rng.getrandbits(16):04x}-4{rng.getrandbits(12):03x}-a{rng.getrandbits(12):03x}"
        items = ",".join(
            f'{{"queue":"{queue}","partition":"p%07d","transactionId":"%08x-{middle}-%012d",'
            f'"payload":{_payload(rng, payload_bytes, stamped=stamped)}}}'
            for _ in range(item_count)
        )
        width = 4 if stamped else 3
        body = f'{{"items":[{items}]}}'.encode()
        head = _post_head(host, "/api/v1/push", len(body % ((0,) * (width * item_count))))
        self._request = head + body
        self._arguments = [0] * (width * item_count)
        self._has_stamp = stamped
        self._first_id = rng.getrandbits(32)
        self.item_count = item_count

    def fill(self, partitions: list[int], first_transaction: int, sent_us: int = 0) -> bytes:
        """Return the request bytes with one partition and one fresh transaction id per item."""
        arguments = self._arguments
        width = 4 if self._has_stamp else 3
        numbers = range(first_transaction, first_transaction + self.item_count)
        scattered = self._first_id
        arguments[0::width] = partitions
        arguments[1::width] = [number * _SCATTER + scattered & 0xFFFF_FFFF for number in numbers]
        arguments[2::width] = numbers
        if self._has_stamp:
            arguments[3::width] = [sent_us] * self.item_count
        return self._request % tuple(arguments)


class PushRequests:
    """The requests that a push role sends, by their number: the same number is the same bytes.

    That is how ids that were pushed long ago are pushed once more without being remembered.
    """

    def __init__(self, role: PushRole, host: str) -> None:
        self._role = role
        self._templates = [
            PushTemplate(
                host=host,
                queue=role.queue,
                item_count=role.items,
                payload_bytes=role.payload_bytes,
                seed=role.seed + index,
                stamped=role.is_stamped,
            )
            for index in range(max(1, _DISTINCT_ITEMS // role.items))
        ]
        self._runs_per_request = math.ceil(role.items / role.run_length)
        order = list(range(role.partitions))
        if role.is_shuffled:
            random.Random(role.seed).shuffle(order)
        # Repeated, so that the runs of a request are one slice wherever in the round they begin.
        self._order = order * (1 + math.ceil(self._runs_per_request / len(order)))

    def render(self, number: int, sent_us: int = 0) -> bytes:
        """Return the bytes of the request with that number."""
        template = self._templates[number % len(self._templates)]
        return template.fill(self._partitions(number), number * self._role.items, sent_us)

    def _partitions(self, number: int) -> list[int]:
        start = number * self._runs_per_request % self._role.partitions
        runs = self._order[start : start + self._runs_per_request]
        length = self._role.run_length
        if length == 1:
            return runs
        return [partition for partition in runs for _ in range(length)][: self._role.items]


def _payload(rng: random.Random, size: int, *, stamped: bool) -> str:
    # Letters drawn at random: equal payloads would let PostgreSQL compress segments as no
    # application's data ever compresses.
    # The time is text: a JSON number may not begin with the zeros that a fixed width wants.
    opening = '{"sentUs":"%016d","note":"' if stamped else '{"note":"'
    used = len(opening % 0 if stamped else opening) + len('"}')
    return opening + "".join(rng.choices(_LETTERS, k=max(size - used, 1))) + '"}'


def pop_request(
    *, host: str, queue: str, batch: int, partitions: int, auto_ack: bool, wait_ms: int, group: str
) -> bytes:
    """Return a wildcard pop; `wait_ms` 0 asks for an answer at once, no group is queue mode."""
    query = f"batch={batch}&partitions={partitions}&autoAck={'true' if auto_ack else 'false'}"
    if wait_ms:
        query += f"&wait=true&timeout={wait_ms}"
    if group:
        query += f"&consumerGroup={group}"
    return f"GET /api/v1/pop/queue/{queue}?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def _post_head(host: str, path: str, content_length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {content_length}\r\n\r\n"
    ).encode()


def count_queued(body: bytes) -> int:
    """Count the items that a push answer reports as stored."""
    return body.count(b'"status":"queued"')


def count_duplicates(body: bytes) -> int:
    """Count the items that a push answer reports as stored before."""
    return body.count(b'"status":"duplicate"')


def count_messages(body: bytes) -> int:
    """Count the messages of a pop answer."""
    return body.count(b'"transactionId"')


def count_acknowledged(body: bytes) -> int:
    """Count the items that an ack answer reports as done."""
    return body.count(b'"success":true')


def sent_stamps_us(body: bytes) -> list[int]:
    """Return the send times that stamped messages carry, in the order of the messages."""
    return [int(stamp) for stamp in _STAMP.findall(body)]


class _Acknowledgment(msgspec.Struct, rename="camel"):
    """A popped message read as the acknowledgment that answers it: same names, plus a status."""

    transaction_id: str
    partition_id: str
    lease_id: str
    status: str = "completed"


class _PopAnswer(msgspec.Struct):
    messages: list[_Acknowledgment]


class _AckRequest(msgspec.Struct, rename="camel"):
    acknowledgments: list[_Acknowledgment]
    consumer_group: str | None


_decode_pop = msgspec.json.Decoder(_PopAnswer).decode
_encode_ack = msgspec.json.Encoder().encode


def ack_request(*, host: str, group: str, popped: bytes) -> bytes:
    """Return the ack/batch request that completes every message of a pop answer."""
    body = _encode_ack(_AckRequest(_decode_pop(popped).messages, group or None))
    return _post_head(host, "/api/v1/ack/batch", len(body)) + body

"""What a call on timers may contain, and what refuses it. Pure.

Every rule of the wire that needs no database is here, each with the code that clients know. A
payload comes as base64, because Queen's may be any bytes; here it is JSON, as of every message.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec
import xxhash

from skep.model.envelopes import build_envelope
from skep.model.errors import BadRequest, PayloadTooLarge, TimerHorizonExceeded, TimersBadRequest
from skep.model.limits import TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, refuse_transaction_id
from skep.model.wire import DEFAULT_PARTITION

OPERATIONS_MAX: Final = 256
KEY_BYTES_MAX: Final = 512
PAYLOAD_BYTES_MAX: Final = 1 << 20
HORIZON_MS: Final = 90 * 24 * 3600 * 1000
PREFIX_BYTES_MAX: Final = 128
LIST_LIMIT: Final = 100
LIST_LIMIT_MAX: Final = 1000

_SERVER_OWNED: Final = frozenset(
    {
        *("producerSub", "messageId", "tenant", "tenantId", "deliverAt", "attempts", "claimToken"),
        *("producer_sub", "message_id", "tenant_id", "deliver_at", "claim_token", "claimedUntil"),
        *("delaySeconds", "delay_seconds"),
    }
)
_OPS: Final = ("schedule", "reschedule", "cancel")


class TimerOperation(msgspec.Struct, rename="camel", gc=False):
    """One operation of a call, as it is sent."""

    op: str = ""
    queue: str = ""
    timer_key: str = ""
    delay_ms: int | float | None = None
    payload: str | None = None
    partition: str | None = None
    txn: str | None = None
    payload_zstd: bool = False
    encrypted: bool = False


class TimerStep(NamedTuple):
    """One operation, ready for the database."""

    queue: str
    timer_key: str
    transaction_id: str | None
    """As the client sent it; of what is scheduled, always one."""
    op: str = "cancel"
    partition: str | None = None
    payload: bytes = b""
    delay_ms: int | None = None

    @property
    def schedules(self) -> bool:
        """Whether it schedules a timer; if not, it cancels one."""
        return self.delay_ms is not None

    def envelope(self, producer: str | None) -> bytes:
        """Return the message as it is stored."""
        assert self.transaction_id is not None
        return build_envelope(self.transaction_id, self.payload, producer=producer)

    def key(self, hash_seed: int) -> bytes:
        """Return the key of its transaction id in the log."""
        return xxhash.xxh3_128_digest((self.transaction_id or "").encode(), hash_seed)


_decode: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_body: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_REASONS: Final = {
    "delayMs": "timers_delay_required",
    "payload": "timers_payload_not_base64",
    "queue": "timers_queue_required",
    "timerKey": "timers_key_required",
    "op": "timers_bad_op",
}
_FIELD: Final = re.compile(r"\$\.(\w+)`")


def read_steps(body: bytes) -> list[TimerStep]:
    """Decode and check the body of a call: an object with operations, or their array alone.

    Raises:
        TimersBadRequest: It is malformed, or there are too many operations.
        PayloadTooLarge: A payload or key is too large.
        TimerHorizonExceeded: A timer is too far ahead.
    """
    try:
        if not body.isascii():
            body.decode()  # what stays raw is not checked by the decoder
        listed = body if body[:1] == b"[" else _decode_body(body)["operations"]
        sent = _decode(listed)
    except KeyError:
        raise _refusal("timers_bad_body", "the body needs operations, an array") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(
            "timers_bad_body", f"the body is not an array of operations: {error}"
        ) from None
    if len(sent) > OPERATIONS_MAX:
        text = f"too many operations: {len(sent)}. Send at most {OPERATIONS_MAX}"
        raise _refusal("timers_too_many_ops", text)
    steps = [_step(each) for each in sent]
    seen: set[tuple[str, str]] = set()
    for step in steps:
        key = (step.queue, step.timer_key)
        if key in seen:
            text = f"the timer {step.timer_key!r} of {step.queue} is named twice; send two calls"
            raise _refusal("timers_duplicate_in_call", text)
        seen.add(key)
    return steps


def _step(sent: dict[str, msgspec.Raw]) -> TimerStep:
    owned = sorted(name for name in sent if name in _SERVER_OWNED or name.startswith("_"))
    if owned:
        text = f"{owned[0]} is not part of an operation: the server sets it"
        raise _refusal("timers_server_owned_field", text)
    try:
        each = msgspec.json.decode(msgspec.json.encode(sent), type=TimerOperation)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        reason = _REASONS.get(found[1] if found else "", "timers_bad_body")
        raise _refusal(reason, str(error)) from None
    if each.op not in _OPS:
        text = f"Invalid op: {each.op[:100]!r}. Use one of {', '.join(_OPS)}"
        raise _refusal("timers_bad_op", text)
    check_target(each.queue, each.timer_key)
    _check_txn(each.txn)
    if each.op == "cancel":
        return TimerStep(each.queue, each.timer_key, each.txn)
    try:
        partition = check_name("partition", each.partition or DEFAULT_PARTITION)
    except BadRequest as error:
        raise _refusal("timers_bad_partition", error.message) from None
    return TimerStep(
        each.queue,
        each.timer_key,
        each.txn or str(uuid4()),
        each.op,
        partition,
        _payload(each),
        _delay_ms(each.delay_ms),
    )


def check_target(queue: str, timer_key: str) -> None:
    """Raise unless these can name a timer."""
    check_queue(queue)
    if not timer_key or "\0" in timer_key:
        text = "timerKey must not be empty nor contain a NUL"
        raise _refusal("timers_key_required", text)
    check_key_size("timerKey", timer_key, KEY_BYTES_MAX)


def check_queue(queue: str) -> None:
    """Raise `TimersBadRequest` unless it can be the name of a queue."""
    try:
        check_name("queue", queue)
    except BadRequest as error:
        raise _refusal("timers_queue_required", error.message) from None


def check_key_size(name: str, text: str, bytes_max: int) -> None:
    """Raise unless a text is of at most so many bytes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _refusal("timers_key_required", f"{name} is not valid Unicode") from None
    if size > bytes_max:
        raise PayloadTooLarge(
            f"{name} has {size} bytes; it may have {bytes_max}", reason="timers_key_too_large"
        )
    if "\0" in text:
        raise _refusal("timers_key_required", f"{name} must not contain a NUL")


def _check_txn(txn: str | None) -> None:
    if txn and (len(txn) > TRANSACTION_ID_CHARS_MAX or "\0" in txn):
        try:
            refuse_transaction_id(txn)
        except BadRequest as error:
            raise _refusal("timers_bad_txn", error.message) from None


def _delay_ms(delay_ms: float | None) -> int:
    if delay_ms is None:
        text = "delayMs is missing: milliseconds from now; 0 or less fires at once"
        raise _refusal("timers_delay_required", text)
    if delay_ms > HORIZON_MS:
        text = f"delayMs is {delay_ms:.0f}; a timer may be {HORIZON_MS} ahead, 90 days"
        raise TimerHorizonExceeded(text, reason="timer_horizon_exceeded")
    return max(int(delay_ms), 0)


def _payload(each: TimerOperation) -> bytes:
    if each.payload is None:
        text = f"{each.op} needs a payload: JSON, encoded as base64"
        raise _refusal("timers_payload_required", text)
    if each.payload_zstd or each.encrypted:
        text = (
            "payloadZstd and encrypted are not supported: send JSON in clear; the server encrypts "
            "it where the queue wants it"
        )
        raise _refusal("timers_payload_not_json", text)
    try:
        payload = b64decode(each.payload, validate=True)
    except (NotBase64, ValueError):
        raise _refusal("timers_payload_not_base64", "the payload is not base64") from None
    if len(payload) > PAYLOAD_BYTES_MAX:
        text = f"the payload has {len(payload)} bytes; it may have {PAYLOAD_BYTES_MAX}"
        raise PayloadTooLarge(text, reason="timers_payload_too_large")
    try:
        payload.decode()
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal("timers_payload_not_json", f"the payload is not JSON: {error}") from None
    return payload.strip()


def _refusal(reason: str, text: str) -> TimersBadRequest:
    return TimersBadRequest(text, reason=reason)


class TimerPage(NamedTuple):
    """Which timers of a queue are asked for, or how many."""

    after: str | None
    limit: int
    counted_prefix: str | None = None
    """Count those whose key begins with it, instead of listing."""


def read_query(query: dict[str, str]) -> TimerPage:
    """Read the parameters of a list of timers.

    Raises:
        TimersBadRequest: One is malformed, or does not go with the others.
    """
    mode = query.get("mode", "rows")
    if mode == "count":
        if "after" in query or "limit" in query:
            text = "mode=count counts all: leave out after and limit"
            raise _refusal("timers_count_takes_no_page", text)
        prefix = query.get("prefix", "")
        if not 1 <= len(prefix.encode()) <= PREFIX_BYTES_MAX or "\0" in prefix:
            text = f"mode=count needs a prefix of 1 to {PREFIX_BYTES_MAX} bytes"
            raise _refusal("timers_count_bad_prefix", text)
        return TimerPage(None, 0, prefix)
    if mode != "rows":
        text = f"Invalid mode: {mode[:100]!r}. Use count, or leave it out"
        raise _refusal("timers_read_mode_unknown", text)
    after = query.get("after") or None
    check_key_size("after", after or "", KEY_BYTES_MAX)
    limit = query.get("limit", str(LIST_LIMIT))
    if re.fullmatch(r"-?\d{1,18}", limit, re.ASCII) is None:
        raise _refusal("timers_bad_limit", f"Invalid limit: {limit[:100]!r}. Use a number")
    return TimerPage(after, min(max(int(limit), 1), LIST_LIMIT_MAX))

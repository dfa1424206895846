"""What a call on locks may contain, and what refuses it. Pure.

Every rule of the wire that needs no database is here, each with the code that clients know.
"""

import re
import unicodedata
from typing import Final

import msgspec

from skep.broker.kv.operations import TTL_SECONDS_MAX, VERSION_MAX
from skep.model.errors import LocksBadRequest
from skep.model.limits import WAIT_MS_MAX

NAMESPACE: Final = "queen-locks"
OPERATIONS_MAX: Final = 64
SLOTS_MAX: Final = 4096
"""Permits that the operations of a call look at together."""
LIMIT_MAX: Final = 1024
TEXT_BYTES_MAX: Final = 256
GET_SLOTS: Final = 1000
"""As which a `get` counts."""

_TENANT: Final = ("tenant", "tenantId", "_tenant")
_OPS: Final = ("acquire", "renew", "release", "get")
_NONE: Final = msgspec.UNSET


class LockOperation(msgspec.Struct, rename="camel", gc=False):
    """One operation of a call."""

    op: str = ""
    name: str = ""
    ttl_seconds: int | msgspec.UnsetType = _NONE
    """Of acquire and renew: how long the permit is held unless it is renewed."""
    owner: str | None = None
    """Makes repetitions safe: who holds a permit gets it again."""
    limit: int = 1
    """Of acquire: how many permits there are."""
    wait_ms: int = 0
    """Of acquire: how long to wait for a permit, in line."""
    token: int | msgspec.UnsetType = _NONE
    """Of renew and release: as the last acquire or renew answered."""
    slot: int = 0

    @property
    def key(self) -> str:
        """The key of its permit."""
        return key_of(self.name, self.slot)


def key_of(name: str, slot: int) -> str:
    """Return the key of a permit."""
    return f"{name}#{slot}"


_decode_list: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_body: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_REASONS: Final = {
    "op": "locks_unknown_op",
    "name": "locks_bad_name",
    "ttlSeconds": "locks_bad_ttl",
    "owner": "locks_bad_owner",
    "limit": "locks_bad_limit",
    "waitMs": "locks_bad_wait",
    "token": "locks_bad_token",
    "slot": "locks_bad_slot",
}
_FIELD: Final = re.compile(r"\$\.(\w+)`")


def read_operations(body: bytes) -> list[LockOperation]:
    """Decode and check the body of a call: an object with operations, or their array alone.

    Raises:
        LocksBadRequest: It is malformed, or there are too many operations.
    """
    try:
        if not body.isascii():
            body.decode()  # what stays raw is not checked by the decoder
        sent = _decode_list(body if body[:1] == b"[" else _decode_body(body)["operations"])
    except KeyError:
        raise _refusal("locks_bad_body", "the body needs operations, an array") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = f"the body is not an array of operations: {error}"
        raise _refusal("locks_bad_body", text) from None
    if len(sent) > OPERATIONS_MAX:
        text = f"too many operations: {len(sent)}. Send at most {OPERATIONS_MAX}"
        raise _refusal("locks_too_many_ops", text)
    operations = [_operation(each) for each in sent]
    names = [each.name for each in operations]
    if len(set(names)) < len(names):
        text = "a lock is named by two operations; send two calls"
        raise _refusal("locks_duplicate_in_call", text)
    slots = sum(GET_SLOTS if each.op == "get" else each.limit for each in operations)
    if slots > SLOTS_MAX:
        text = f"too many permits: {slots}. The operations of a call may look at {SLOTS_MAX}"
        raise _refusal("locks_too_many_keys", text)
    return operations


def _operation(sent: dict[str, msgspec.Raw]) -> LockOperation:
    if any(name in sent for name in _TENANT):
        text = "the tenant is not part of an operation: the caller's token decides"
        raise _refusal("locks_tenant_not_an_input", text)
    try:
        each = msgspec.json.decode(msgspec.json.encode(sent), type=LockOperation)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        reason = _REASONS.get(found[1] if found else "", "locks_bad_body")
        raise _refusal(reason, str(error)) from None
    if each.op not in _OPS:
        text = f"Invalid op: {each.op[:100]!r}. Use one of {', '.join(_OPS)}"
        raise _refusal("locks_unknown_op", text)
    if not _is_text(each.name) or "#" in each.name:
        text = f"name needs 1 to {TEXT_BYTES_MAX} bytes without control characters and #"
        raise _refusal("locks_bad_name", text)
    if each.owner is not None and not _is_text(each.owner):
        text = f"owner needs 1 to {TEXT_BYTES_MAX} bytes without control characters"
        raise _refusal("locks_bad_owner", text)
    if not 0 <= each.slot < LIMIT_MAX:
        raise _refusal("locks_bad_slot", f"Invalid slot: {each.slot}. Use 0 to {LIMIT_MAX - 1}")
    if not 1 <= each.limit <= LIMIT_MAX:
        raise _refusal("locks_bad_limit", f"Invalid limit: {each.limit}. Use 1 to {LIMIT_MAX}")
    if not 0 <= each.wait_ms <= WAIT_MS_MAX:
        text = f"Invalid waitMs: {each.wait_ms}. Use 0 to {WAIT_MS_MAX}"
        raise _refusal("locks_bad_wait", text)
    if each.op in ("acquire", "renew"):
        _check_ttl(each)
    if each.op in ("renew", "release"):
        _check_token(each)
    return each


def _check_ttl(each: LockOperation) -> None:
    if isinstance(each.ttl_seconds, msgspec.UnsetType):
        text = f"{each.op} needs ttlSeconds; a holder that needs longer renews"
        raise _refusal("locks_ttl_required", text)
    if not 1 <= each.ttl_seconds <= TTL_SECONDS_MAX:
        text = f"Invalid ttlSeconds: {each.ttl_seconds}. Use 1 to {TTL_SECONDS_MAX}"
        raise _refusal("locks_bad_ttl", text)


def _check_token(each: LockOperation) -> None:
    if isinstance(each.token, msgspec.UnsetType):
        text = f"{each.op} needs the token that the last acquire or renew answered"
        raise _refusal("locks_token_required", text)
    if not 1 <= each.token <= VERSION_MAX:
        raise _refusal(
            "locks_bad_token", f"Invalid token: {each.token}. Use a whole number above 0"
        )


def _is_text(text: str) -> bool:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    return 0 < size <= TEXT_BYTES_MAX and not any(unicodedata.category(c) == "Cc" for c in text)


def _refusal(reason: str, text: str) -> LocksBadRequest:
    return LocksBadRequest(text, reason=reason)

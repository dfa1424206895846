"""What a call on keys may contain, and what refuses it. Pure.

`read_operations` decodes a body and `planned` checks it: every rule of the wire that needs no
database is here, each with the code that clients know. A `Plan` is a call ready for the database:
its operations in the order in which they are carried out, and the lists it asks for.

Operations on single keys go by (namespace, key, place in the call), then come reads of several
keys, then lists; so these see what the call has written.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from skep.model.errors import BadRequest, KvBadRequest, PayloadTooLarge

OPERATIONS_MAX: Final = 256
KEYS_MAX: Final = 1024
"""Keys that a call names or may list."""
RIDER_OPERATIONS_MAX: Final = 64
"""Of a transaction, which holds their keys until all of it is done."""
RIDER_KEYS_MAX: Final = 256
KEY_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 64 * 1024
LIST_LIMIT: Final = 100
LIST_LIMIT_MAX: Final = 1000
TTL_SECONDS_MAX: Final = 100 * 366 * 24 * 3600
VERSION_MAX: Final = 2**63 - 1
_NUMBER_BYTES_MAX: Final = 400
_EXPONENT_MAX: Final = 308

NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?(\d{1,9}))?")

Word: TypeAlias = Literal[
    "get", "getMany", "getPrefix", "put", "putIfAbsent", "delete", "incr", "check"
]
_NONE: Final = msgspec.Raw()


class KvOperation(msgspec.Struct, rename="camel", gc=False):
    """One operation of a call, as it is sent."""

    op: str
    ns: str = ""
    key: str = ""
    keys: list[str] | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw = _NONE
    """Of a put: any JSON, also null."""
    ttl_seconds: int | msgspec.UnsetType = msgspec.UNSET
    forever: bool = False
    expect: int | msgspec.UnsetType = msgspec.UNSET
    """The version the key must have; 0: it must not exist."""
    required: bool = False
    """If it is not applied, nothing of the call is."""
    delta: msgspec.Raw = _NONE
    min: msgspec.Raw = _NONE
    max: msgspec.Raw = _NONE
    prefix: str = ""
    after: str | None = None
    limit: int | msgspec.UnsetType = msgspec.UNSET
    keys_only: bool = False
    tenant: msgspec.Raw = _NONE
    tenant_id: msgspec.Raw = _NONE
    inner_tenant: msgspec.Raw = msgspec.field(default=_NONE, name="_tenant")


class KvBody(msgspec.Struct):
    """Body of `POST /api/v1/kv`. It may also be the array of operations alone."""

    operations: list[KvOperation]


class Step(NamedTuple):
    """One operation on one key, ready for the database."""

    place: int
    """Of its operation in the call."""
    key: tuple[str, str]
    op: str
    value: str | None = None
    expect: int | None = None
    ttl_s: int | None = None
    is_required: bool = False
    min: str | None = None
    max: str | None = None


class Listing(NamedTuple):
    """The keys of a namespace that begin with a prefix."""

    place: int
    ns: str
    prefix: str
    after: str | None
    limit: int


class Plan(NamedTuple):
    """A call ready for the database."""

    operations: list[KvOperation]
    steps: list[Step]
    """In the order in which they are carried out; a read of several keys is a step for each."""
    listings: list[Listing]
    writes: bool
    """Whether it may change keys, or must keep them from changing."""

    @property
    def namespaces(self) -> set[str]:
        """The namespaces it is about."""
        return {operation.ns for operation in self.operations}


_decode_body: Final = msgspec.json.Decoder(KvBody).decode
_decode_list: Final = msgspec.json.Decoder(list[KvOperation]).decode
_FIELD: Final = re.compile(r"\.(\w+)(?:\[\.*\d*\])?`")
_REASONS: Final = {
    "op": "kv_unknown_op",
    "ns": "kv_bad_namespace",
    "key": "kv_bad_key",
    "keys": "kv_bad_key",
    "ttlSeconds": "kv_bad_ttl",
    "expect": "kv_bad_expect",
}
"""By the field that has another type."""


def read_operations(body: bytes) -> list[KvOperation]:
    """Decode the body of a call: an object with operations, or their array alone."""
    try:
        if not body.isascii():
            body.decode()  # what stays raw is not checked by the decoder
        if body[:1] == b"[":
            return _decode_list(body)
        return _decode_body(body).operations
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        missing = "missing required field `op`" in str(error)
        reason = _REASONS.get(found[1] if found else "", "kv_bad_body")
        raise KvBadRequest(str(error), reason="kv_unknown_op" if missing else reason) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KvBadRequest(f"the body is not valid JSON: {error}", reason="kv_bad_body") from None
    except RecursionError:
        raise KvBadRequest("the body is nested too deeply", reason="kv_bad_body") from None


def planned_rider(operations: Sequence[msgspec.Raw]) -> Plan:
    """Check the operations on keys of a transaction and put them in order.

    Raises:
        KvBadRequest: One is malformed or lists keys, or there are too many.
        PayloadTooLarge: A key or value is too large.
    """
    decoded = read_operations(b"[%b]" % b",".join(map(bytes, operations)))
    if any(each.op == "getPrefix" for each in decoded):
        raise KvBadRequest("transactions do not take getPrefix", reason="kv_unknown_op")
    return planned(decoded, operations_max=RIDER_OPERATIONS_MAX, keys_max=RIDER_KEYS_MAX)


def planned(
    operations: list[KvOperation],
    *,
    operations_max: int = OPERATIONS_MAX,
    keys_max: int = KEYS_MAX,
) -> Plan:
    """Check the operations of a call and put them in order.

    Raises:
        KvBadRequest: One is malformed, or there are too many.
        PayloadTooLarge: A key or value is too large.
    """
    if len(operations) > operations_max:
        text = f"too many operations: {len(operations)}. Send at most {operations_max}"
        raise KvBadRequest(text, reason="kv_too_many_ops")
    single: list[Step] = []
    several: list[Step] = []
    listings: list[Listing] = []
    written: set[tuple[str, str]] = set()
    key_count = 0
    for place, each in enumerate(operations):
        _check_common(each)
        if each.op == "getMany":
            keys = _keys(each)
            several += [Step(place, (each.ns, key), "get") for key in keys]
            key_count += len(keys)
        elif each.op == "getPrefix":
            listing = _listing(place, each)
            listings.append(listing)
            key_count += listing.limit
        else:
            step = _step(place, each)
            single.append(step)
            key_count += 1
            if step.op in _WRITES:
                if step.key in written:
                    text = f"the key {each.key!r} is written twice; send two calls"
                    raise KvBadRequest(text, reason="kv_duplicate_key_in_call")
                written.add(step.key)
    if key_count > keys_max:
        text = f"too many keys: {key_count}. A call may name and list {keys_max}"
        raise KvBadRequest(text, reason="kv_too_many_keys")
    single.sort(key=_order)
    writes = bool(written) or any(step.op == "check" for step in single)
    return Plan(operations, single + several, listings, writes)


_WRITES: Final = frozenset({"put", "incr", "delete"})


def _order(step: Step) -> tuple[tuple[str, str], int]:
    return step.key, step.place


def _check_common(each: KvOperation) -> None:
    if not (each.tenant is each.tenant_id is each.inner_tenant is _NONE):
        text = "the tenant is not part of an operation: the caller's token decides"
        raise KvBadRequest(text, reason="kv_tenant_not_an_input")
    if each.op not in _STEPS and each.op not in ("getMany", "getPrefix"):
        words = ", ".join((*_STEPS, "getMany", "getPrefix"))
        raise KvBadRequest(
            f"Invalid op: {each.op[:100]!r}. Use one of {words}", reason="kv_unknown_op"
        )
    check_namespace(each.ns)


def check_namespace(ns: str) -> None:
    """Raise `KvBadRequest` unless it is the name of a namespace."""
    if NAMESPACE.fullmatch(ns) is None:
        text = (
            f"Invalid ns: {ns[:100]!r}. Use 1 to 64 lower-case letters, digits, dots, underscores "
            "and dashes, a letter or digit first"
        )
        raise KvBadRequest(text, reason="kv_bad_namespace")


def check_key(name: str, key: str) -> None:
    """Raise unless a text is the whole of a key."""
    if not key or "\0" in key:
        raise KvBadRequest(f"{name} must not be empty nor contain a NUL", reason="kv_bad_key")
    check_key_size(name, key)


def check_key_size(name: str, key: str) -> None:
    """Raise unless a text can be the beginning of a key."""
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        raise KvBadRequest(f"{name} is not valid Unicode", reason="kv_bad_key") from None
    if size > KEY_BYTES_MAX:
        text = f"{name} has {size} bytes; a key may have {KEY_BYTES_MAX}"
        raise PayloadTooLarge(text, reason="kv_key_too_large")
    if "\0" in key:
        raise KvBadRequest(f"{name} must not contain a NUL", reason="kv_bad_key")


def _keys(each: KvOperation) -> list[str]:
    if isinstance(each.keys, msgspec.UnsetType):
        raise KvBadRequest("getMany needs keys, an array", reason="kv_bad_key")
    for key in each.keys:
        check_key("each of keys", key)
    return sorted(set(each.keys))


def _listing(place: int, each: KvOperation) -> Listing:
    if not each.prefix:
        raise KvBadRequest(
            "getPrefix needs a prefix, at least one character", reason="kv_prefix_required"
        )
    check_key_size("prefix", each.prefix)
    check_key_size("after", each.after or "")
    limit = LIST_LIMIT if isinstance(each.limit, msgspec.UnsetType) else each.limit
    return Listing(place, each.ns, each.prefix, each.after, min(max(limit, 1), LIST_LIMIT_MAX))


def _step(place: int, each: KvOperation) -> Step:
    check_key("key", each.key)
    if each.expect is not msgspec.UNSET:
        _check_expect(each)
    return _STEPS[each.op](place, each)


def _check_expect(each: KvOperation) -> None:
    expect = each.expect
    if isinstance(expect, int) and not 0 <= expect <= VERSION_MAX:
        text = f"Invalid expect: {expect}. Use a version, or 0 for a key that must not exist"
        raise KvBadRequest(text, reason="kv_bad_expect")
    if each.op == "incr" or (each.op == "putIfAbsent" and expect != 0):
        text = f"{each.op} takes no expect; use put with an expected version"
        raise KvBadRequest(text, reason="kv_bad_expect")


def _get(place: int, each: KvOperation) -> Step:
    return Step(place, (each.ns, each.key), "get")


def _check(place: int, each: KvOperation) -> Step:
    expect = _expected(each)
    if expect is None:
        raise KvBadRequest("check needs expect: a version, or 0 for no key", reason="kv_bad_expect")
    return Step(place, (each.ns, each.key), "check", None, expect, None, each.required)


def _delete(place: int, each: KvOperation) -> Step:
    key = (each.ns, each.key)
    return Step(place, key, "delete", None, _expected(each), None, each.required)


def _put(place: int, each: KvOperation) -> Step:
    expect = 0 if each.op == "putIfAbsent" else _expected(each)
    ttl_s = _ttl_s(each)
    value = _value(each)
    return Step(place, (each.ns, each.key), "put", value, expect, ttl_s, each.required)


def _incr(place: int, each: KvOperation) -> Step:
    if each.delta is _NONE:
        raise KvBadRequest("incr needs a delta, a number", reason="kv_bad_body")
    delta = _number("delta", each.delta)
    ttl_s = _ttl_s(each)
    low, high = _bound("min", each.min), _bound("max", each.max)
    key = (each.ns, each.key)
    return Step(place, key, "incr", delta, None, ttl_s, each.required, low, high)


_STEPS: Final = {
    "get": _get,
    "put": _put,
    "putIfAbsent": _put,
    "delete": _delete,
    "incr": _incr,
    "check": _check,
}


def _expected(each: KvOperation) -> int | None:
    return None if isinstance(each.expect, msgspec.UnsetType) else each.expect


def _ttl_s(each: KvOperation) -> int | None:
    """Return the seconds until it expires; None is never."""
    ttl = each.ttl_seconds
    if isinstance(ttl, msgspec.UnsetType):
        if not each.forever:
            text = f"{each.op} needs either ttlSeconds or forever: true"
            raise KvBadRequest(text, reason="kv_expiry_not_specified")
        return None
    if each.forever:
        raise KvBadRequest(
            "ttlSeconds and forever exclude each other", reason="kv_expiry_not_specified"
        )
    if not 1 <= ttl <= TTL_SECONDS_MAX:
        text = f"Invalid ttlSeconds: {ttl}. Use 1 to {TTL_SECONDS_MAX}"
        raise KvBadRequest(text, reason="kv_bad_ttl")
    return ttl


def _value(each: KvOperation) -> str:
    raw = bytes(each.value)
    if not raw:
        raise KvBadRequest(f"{each.op} needs a value, any JSON", reason="kv_bad_body")
    if len(raw) > VALUE_BYTES_MAX:
        raw = msgspec.json.format(raw, indent=-1)
        if len(raw) > VALUE_BYTES_MAX:
            text = f"the value of {each.key!r} has {len(raw)} bytes; it may have {VALUE_BYTES_MAX}"
            raise PayloadTooLarge(text, reason="kv_value_too_large")
    return raw.decode()


def _bound(name: str, raw: msgspec.Raw) -> str | None:
    return None if raw is _NONE or bytes(raw) == b"null" else _number(name, raw)


def _number(name: str, raw: msgspec.Raw) -> str:
    """Return the text of a number that the database can add exactly."""
    text = bytes(raw)
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _NUMBER_BYTES_MAX or int(found[1] or 0) > _EXPONENT_MAX:
        shown = text[:100].decode(errors="replace")
        raise KvBadRequest(f"Invalid {name}: {shown}. Use a number", reason="kv_bad_body")
    return text.decode()


def in_path(method_op: str, ns: str, key: str, body: bytes) -> list[KvOperation]:
    """Return the call that a route with the key in its path means.

    Raises:
        KvBadRequest: The body repeats what the path or the method says, or is malformed.
    """
    if not body:
        return [KvOperation(op=method_op, ns=ns, key=key)]
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise KvBadRequest(
            f"the body must be a JSON object: {error}", reason="kv_bad_body"
        ) from None
    if repeated := sorted(given.keys() & {"op", "ns", "key"}):
        text = f"{repeated[0]} is said by the path and the method; leave it out of the body"
        raise KvBadRequest(text, reason="kv_field_in_path")
    whole = {**given, "op": method_op, "ns": ns, "key": key}
    return read_operations(msgspec.json.encode([whole]))


def refuse_query(query: object) -> None:
    """Raise `KvBadRequest` if a route of keys was called with a query string."""
    if query:
        text = "routes of keys take no query string: it would be written to access logs"
        raise KvBadRequest(text, reason="kv_no_query_string")


def rejected(error: BadRequest) -> KvBadRequest:
    """Return the refusal of a value that the database cannot store."""
    return KvBadRequest(f"the value cannot be stored: {error.message}", reason="kv_bad_body")

"""Check payloads against the JSON Schema of their queue.

`compile_schema` turns a schema into a validator once; `SchemaCache` keeps those in use. Which draft
applies is what `$schema` says, else 2020-12. A schema stands alone: nothing is ever fetched, so a
reference to another document is refused when the queue is configured. Patterns run on an engine of
linear time, which knows no look-around: no payload can keep the broker busy.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from skep.model.errors import BadRequest
from skep.model.limits import JSON_SCHEMA_BYTES_MAX

VALIDATORS_MAX: Final = 1_000
"""Compiled schemas kept per process; the one not used for longest is compiled anew when needed."""

ERRORS_SHOWN_MAX: Final = 3
"""Reasons given for one payload. A producer fixes its code, not its message."""

_LINEAR_TIME: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20)

_decode = msgspec.json.decode


class InvalidSchema(BadRequest):
    """The JSON Schema cannot be used."""

    code = "invalid_schema"


class PayloadValidator:
    """One compiled schema."""

    __slots__ = ("_validator",)

    def __init__(self, validator: jsonschema_rs.Validator) -> None:
        self._validator: Final = validator

    def validate(self, payload: bytes) -> str | None:
        """Say what is wrong with a payload, by path and reason; None when nothing is."""
        try:
            value: Any = _decode(payload)
            if self._validator.is_valid(value):
                return None
            return _explain(self._validator, value)
        except (ValueError, RecursionError) as error:
            # JSON that no validator can look at: too deep, or half of a surrogate pair.
            return f"payload cannot be checked: {error}"


def compile_schema(schema: Mapping[str, Any]) -> PayloadValidator:
    """Prepare a schema.

    Raises:
        InvalidSchema: It is too large, is not JSON Schema, or refers to another document.
    """
    if len(msgspec.json.encode(schema)) > JSON_SCHEMA_BYTES_MAX:
        raise InvalidSchema(f"jsonSchema is larger than {JSON_SCHEMA_BYTES_MAX} bytes")
    try:
        validator = jsonschema_rs.validator_for(
            dict(schema),
            validate_formats=True,
            pattern_options=_LINEAR_TIME,
            mask="the value",
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchema(f"jsonSchema{_spell_path(error)}: {error.message}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"jsonSchema cannot be used: {error}") from None
    return PayloadValidator(validator)


class SchemaCache:
    """Validators by queue, each for the version of the queue it was compiled from."""

    def __init__(self, size_max: int = VALIDATORS_MAX) -> None:
        self._size_max: Final = size_max
        self._by_queue: Final[OrderedDict[int, tuple[int, PayloadValidator]]] = OrderedDict()

    def validator(self, queue_id: int, version: int, schema: Mapping[str, Any]) -> PayloadValidator:
        """Return the validator of a queue, compiling the schema unless this version is known.

        Raises:
            InvalidSchema: The stored schema cannot be used by this release.
        """
        known = self._by_queue.get(queue_id)
        if known is not None and known[0] == version:
            self._by_queue.move_to_end(queue_id)
            return known[1]
        validator = compile_schema(schema)
        self._by_queue[queue_id] = (version, validator)
        self._by_queue.move_to_end(queue_id)
        if len(self._by_queue) > self._size_max:
            self._by_queue.popitem(last=False)
        return validator


def _explain(validator: jsonschema_rs.Validator, value: object) -> str:
    reasons: list[str] = []
    for error in validator.iter_errors(value):
        if len(reasons) == ERRORS_SHOWN_MAX:
            reasons.append("and more")
            break
        reasons.append(f"payload{_spell_path(error)}: {error.message}")
    return "; ".join(reasons)


def _spell_path(error: jsonschema_rs.ValidationError) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path
    )

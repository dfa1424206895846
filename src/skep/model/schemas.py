"""Check payloads against the JSON Schema of their queue.

`compile_schema` turns a schema into a validator. Which draft applies is what `$schema` says, else
2020-12. A schema stands alone: nothing is ever fetched, so a reference to another document is
refused when the queue is configured. Patterns run on an engine of linear time, which knows no
look-around: no payload can keep the broker busy.
"""

from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from skep.model.errors import BadRequest
from skep.model.limits import JSON_SCHEMA_BYTES_MAX

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


class UnusableSchema:
    """Stands for a stored schema that does not compile: it refuses every payload."""

    __slots__ = ("_reason",)

    def __init__(self, error: InvalidSchema) -> None:
        self._reason: Final = f"the queue's {error.message}; configure the queue again"

    def validate(self, payload: bytes) -> str | None:
        """Say what is wrong with the schema."""
        del payload
        return self._reason


def compile_schema(schema: Mapping[str, Any]) -> PayloadValidator:
    """Prepare a schema."""
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

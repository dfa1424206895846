"""Values of jobs as JSON, checked on the way in and on the way out.

A type is one that msgspec can decode (structs, dataclasses, TypedDicts, builtins and their unions)
or a pydantic model, which brings its own rules. Values are checked when they are written and again
when they are read: a deployment may have changed the type in between.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from skep.model.errors import BadRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

VALUE_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest input or output. Store larger values elsewhere, and their address here."""


@dataclass(frozen=True, slots=True)
class Ref(Generic[T_co]):
    """A chain that will yield a `T`, to be put into the input of a job that waits for it."""

    id: UUID


class Codec(Generic[T]):
    """Reads and writes values of one type; raises `refusal` for a value that is not of it."""

    def __init__(self, kind: Any, refusal: type[BadRequest]) -> None:
        self._kind: Final = kind
        self._refusal: Final = refusal
        self._is_model: Final = hasattr(kind, "model_validate_json")
        self._decoder: Final[Any] = None if self._is_model else msgspec.json.Decoder(kind)

    def encode(self, value: T) -> str:
        """Return the value as JSON; refused if it is too large."""
        try:
            if self._is_model:
                checked = self._kind.model_validate(value)
                encoded: bytes = checked.model_dump_json().encode()
            else:
                encoded = msgspec.json.encode(value)
                self._decoder.decode(encoded)
        except (TypeError, ValueError) as error:  # what msgspec and pydantic raise are ValueErrors
            raise self._refusal(str(error)) from error
        if len(encoded) > VALUE_BYTES_MAX:
            raise self._refusal(
                f"the value has {len(encoded)} bytes: use at most {VALUE_BYTES_MAX}"
            )
        return encoded.decode()

    def decode(self, text: str) -> T:
        """Return the value that the JSON stands for."""
        try:
            if self._is_model:
                return cast("T", self._kind.model_validate_json(text))
            return cast("T", self._decoder.decode(text))
        except ValueError as error:
            raise self._refusal(str(error)) from error


def refs_in(value: object) -> Iterator[Ref[Any]]:
    """Yield the references inside a value, in the order in which they stand there."""
    if isinstance(value, Ref):
        yield cast("Ref[Any]", value)
        return
    for part in _parts(value):
        yield from refs_in(part)


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, str | bytes | int | float):
        return
    if isinstance(value, Mapping):
        yield from cast("Mapping[object, object]", value).values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from cast("list[object]", value)
    elif is_dataclass(value):
        yield from (getattr(value, field.name) for field in fields(value))
    elif isinstance(value, msgspec.Struct):
        yield from (getattr(value, name) for name in value.__struct_fields__)
    elif hasattr(value, "model_dump_json"):
        yield from cast("dict[str, object]", vars(value)).values()

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, PositiveInt

from skep.jobs import Ref
from skep.jobs.declare.codec import VALUE_BYTES_MAX, Codec, refs_in
from skep.jobs.errors import InvalidInput
from skep.jobs.identifiers import new_id


@dataclass
class Plain:
    count: int


class Packed(msgspec.Struct):
    count: int


class Typed(TypedDict):
    count: int


class Model(BaseModel):
    count: PositiveInt


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Plain, Plain(1)),
        (Packed, Packed(1)),
        (Typed, {"count": 1}),
        (Model, Model(count=1)),
        (int | None, None),
        (list[str], ["a", "\0"]),
        (Any, {"free": [1, None]}),
        (None, None),
    ],
)
def test_a_value_comes_back_as_it_went_in(kind, value):
    codec = Codec(kind, InvalidInput)

    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Plain, Packed("one")),
        (Packed, {"count": "one"}),
        (Model, {"count": 0}),
        (int, "1"),
        (object, object()),
    ],
)
def test_a_value_of_another_type_is_refused_when_it_is_written(kind, value):
    with pytest.raises(InvalidInput):
        Codec(kind, InvalidInput).encode(value)


@pytest.mark.parametrize("kind", [Plain, Packed, Model])
def test_a_stored_value_that_does_not_fit_any_more_is_refused_when_it_is_read(kind):
    with pytest.raises(InvalidInput):
        Codec(kind, InvalidInput).decode('{"count": "many"}')


def test_a_value_that_is_too_large_is_refused():
    with pytest.raises(InvalidInput, match="use at most"):
        Codec(str, InvalidInput).encode("x" * VALUE_BYTES_MAX)


@dataclass
class Deep:
    one: Ref[int]
    more: dict[str, list[Ref[int]]]


class DeepModel(BaseModel):
    parts: list[Ref[int]]


class DeepStruct(msgspec.Struct):
    part: Ref[int]


def test_references_are_found_wherever_they_stand():
    refs = [Ref(new_id()) for _ in range(4)]
    value = (Deep(refs[0], {"a": [refs[1]]}), DeepModel(parts=[refs[2]]), DeepStruct(refs[3]), "x")

    assert list(refs_in(value)) == refs

"""What an answer must look like: at least these members, of these types.

A shape is written like the answer itself. In place of a value may stand a type, a set of types
(one of them), or a function that checks; what else stands there must be equal. An object may have
more members than its shape; an array is as long as its shape, unless that is made by `each`.
"""

from datetime import datetime
from uuid import UUID


def uuid(value):
    UUID(value)


def time(value):
    assert value.endswith("Z"), value
    datetime.fromisoformat(value)


def maybe(shape):
    """Let null stand for the shape."""

    def check(value):
        if value is not None:
            check_shape(value, shape)

    return check


def each(shape):
    """Let any number of values have the shape, and at least one."""

    def check(values):
        assert values
        for index, value in enumerate(values):
            check_shape(value, shape, f"[{index}]")

    return check


def check_shape(value, shape, place="answer"):
    """Fail where a value is not what its shape says."""
    if isinstance(shape, dict):
        missing = shape.keys() - value.keys()
        assert not missing, f"{place} lacks {missing}: {value}"
        for name, its_shape in shape.items():
            check_shape(value[name], its_shape, f"{place}.{name}")
    elif isinstance(shape, list):
        assert len(value) == len(shape), f"{place}: {value}"
        for index, (its_value, its_shape) in enumerate(zip(value, shape, strict=True)):
            check_shape(its_value, its_shape, f"{place}[{index}]")
    elif isinstance(shape, type):
        # JSON tells true from 1, and so does this.
        assert type(value) is shape, f"{place} is not {shape}: {value!r}"
    elif isinstance(shape, set):
        assert type(value) in shape, f"{place} is none of {shape}: {value!r}"
    elif callable(shape):
        shape(value)
    else:
        assert value == shape, f"{place} is not {shape!r}: {value!r}"

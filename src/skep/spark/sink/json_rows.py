"""Spell Arrow columns as JSON, a whole column at a time.

Each function takes an array and returns one of strings, as long and without nulls: a null is
spelled `null`. The work is done by Arrow, value by value only where that has nothing to offer:
strings with control characters, and bytes, which become base64.

Dates and times are spelled in ISO 8601, those with a zone in UTC. Numbers that JSON does not know
(NaN, infinities) become null. This is what the reading side understands for the same types.
"""

from binascii import b2a_base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow.compute
from pyspark.sql import types as spark

from skep.spark.decode.payloads import SCALARS
from skep.spark.runtime.arrow import has_control_characters, needs_no_escapes, pa
from skep.spark.source.columns import InvalidColumns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

pc: Final[Any] = pyarrow.compute

_PLAIN: Final = (*SCALARS, spark.NullType)
_NULL: Final = "null"


def check_spellable(data_type: "DataType") -> None:
    """Raise `InvalidColumns` if values of a type cannot be written as JSON."""
    if isinstance(data_type, spark.StructType):
        for field in data_type.fields:
            check_spellable(field.dataType)
    elif isinstance(data_type, spark.ArrayType):
        check_spellable(data_type.elementType)
    elif isinstance(data_type, spark.MapType) and isinstance(data_type.keyType, spark.StringType):
        check_spellable(data_type.valueType)
    elif not isinstance(data_type, _PLAIN):
        raise InvalidColumns(
            f"payloads of type {data_type.simpleString()} cannot be written as JSON; turn them "
            "into another type with the functions of Spark"
        )


def json_texts(values: Any) -> Any:
    """Spell the values of an array as JSON."""
    for is_kind, spell in _SPELLINGS:
        if is_kind(values.type):
            texts = spell(values)
            return pc.fill_null(texts, _NULL) if texts.null_count else texts
    raise InvalidColumns(f"values of Arrow's type {values.type} cannot be written as JSON")


def json_objects(keys: Any, values: Any, offsets: Any, separator: str = ",") -> Any:
    """Spell maps, given as keys and values and where each map begins, as JSON objects."""
    members = _joined(json_texts(keys), ":", json_texts(values))
    lists = pa.ListArray.from_arrays(offsets, members)
    return _joined("{", pc.binary_join(lists, separator), "}")


def _joined(*parts: Any) -> Any:
    """Concatenate, row by row; parts that are not arrays stand in every row."""
    return pc.binary_join_element_wise(*parts, "")


def _number(values: Any) -> Any:
    return values.cast(pa.string())


def _float(values: Any) -> Any:
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type)).cast(pa.string())


def _string(values: Any) -> Any:
    if needs_no_escapes(values):
        return _joined('"', values, '"')
    if has_control_characters(values):
        return _each(values, lambda text: text)
    escaped = pc.replace_substring(values, "\\", "\\\\")
    return _joined('"', pc.replace_substring(escaped, '"', '\\"'), '"')


def _binary(values: Any) -> Any:
    return _each(values, lambda value: value and b2a_base64(value, newline=False).decode())


def _each(values: Any, represent: Callable[[Any], Any]) -> Any:
    """Let msgspec spell a column: all in one call, then cut apart again."""
    spelled = msgspec.json.encode([represent(value) for value in values.to_pylist()])
    texts = msgspec.json.decode(spelled, type=list[msgspec.Raw])
    return pa.array([bytes(text) for text in texts], pa.binary()).cast(pa.string())


def _timestamp(values: Any) -> Any:
    zone = 'Z"' if values.type.tz is not None else '"'
    # Without its zone a timestamp is spelled as it is stored, in UTC.
    texts = values.cast(pa.timestamp("us")).cast(pa.string())
    return _joined('"', pc.replace_substring(texts, " ", "T"), zone)


def _list(values: Any) -> Any:
    lists = pa.ListArray.from_arrays(values.offsets, json_texts(values.values))
    return _unless_null(values, _joined("[", pc.binary_join(lists, ","), "]"))


def _map(values: Any) -> Any:
    return _unless_null(values, json_objects(values.keys, values.items, values.offsets))


def _struct(values: Any) -> Any:
    members: list[Any] = []
    for number in range(values.type.num_fields):
        name = msgspec.json.encode(values.type.field(number).name).decode()
        members += [f"{',' if number else ''}{name}:", json_texts(values.field(number))]
    if not members:
        members = [pa.array([""] * len(values), pa.string())]
    return _unless_null(values, _joined("{", *members, "}"))


def _unless_null(values: Any, texts: Any) -> Any:
    return texts if values.null_count == 0 else pc.if_else(values.is_valid(), texts, _NULL)


_SPELLINGS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...]] = (
    (pa.types.is_string, _string),
    (pa.types.is_large_string, _string),
    (pa.types.is_boolean, _number),
    (pa.types.is_integer, _number),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _number),
    (pa.types.is_date, lambda values: _joined('"', values.cast(pa.string()), '"')),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_struct, _struct),
    (pa.types.is_null, _number),
)

"""Columns spelled as JSON: what any JSON parser reads back is what was in the column."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from skep.spark.sink.json_rows import check_spellable, json_objects, json_texts
from skep.spark.source.columns import InvalidColumns

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.just(pa.string()) | st.just(pa.int64()) | st.just(pa.bool_()) | st.just(pa.float64()),
    lambda inner: (
        st.builds(pa.list_, inner)
        | st.builds(lambda value: pa.map_(pa.string(), value), inner)
        | st.builds(
            lambda types: pa.struct([(f'f"{n}', each) for n, each in enumerate(types)]),
            st.lists(inner, max_size=3),
        )
    ),
    max_leaves=4,
)


def values_of(arrow_type):
    """Values of a type as JSON has them."""
    if pa.types.is_string(arrow_type):
        found = TEXTS
    elif pa.types.is_int64(arrow_type):
        found = st.integers(-(2**63), 2**63 - 1)
    elif pa.types.is_boolean(arrow_type):
        found = st.booleans()
    elif pa.types.is_float64(arrow_type):
        found = st.floats(allow_nan=False, allow_infinity=False)
    elif pa.types.is_map(arrow_type):
        found = st.dictionaries(TEXTS, values_of(arrow_type.item_type), max_size=3)
    elif pa.types.is_list(arrow_type):
        found = st.lists(values_of(arrow_type.value_type), max_size=3)
    else:
        found = st.fixed_dictionaries({f.name: values_of(f.type) for f in arrow_type})
    return st.none() | found


def as_arrow(value, arrow_type):
    """Spell maps as the pairs that Arrow takes them as."""
    if value is None:
        return None
    if pa.types.is_map(arrow_type):
        return [(key, as_arrow(each, arrow_type.item_type)) for key, each in value.items()]
    if pa.types.is_list(arrow_type):
        return [as_arrow(each, arrow_type.value_type) for each in value]
    if pa.types.is_struct(arrow_type):
        return {f.name: as_arrow(value[f.name], f.type) for f in arrow_type}
    return value


@settings(deadline=None)
@given(data=st.data(), arrow_type=VALUES, skipped=st.integers(0, 2))
def test_every_value_is_read_back_as_it_was_also_from_the_middle_of_an_array(
    data, arrow_type, skipped
):
    values = data.draw(st.lists(values_of(arrow_type), min_size=skipped, max_size=6))
    array = pa.array([as_arrow(value, arrow_type) for value in values], arrow_type)

    texts = json_texts(array.slice(skipped)).to_pylist()

    assert [json.loads(text) for text in texts] == values[skipped:]


@pytest.mark.parametrize(
    ("value", "arrow_type", "text"),
    [
        (float("nan"), pa.float64(), "null"),
        (float("-inf"), pa.float32(), "null"),
        (1.5, pa.float32(), "1.5"),
        (Decimal("12.50"), pa.decimal128(10, 2), "12.50"),
        (date(2026, 1, 2), pa.date32(), '"2026-01-02"'),
        (
            datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
            pa.timestamp("us", "Europe/Vienna"),
            '"2026-01-02T03:04:05.000006Z"',
        ),
        (
            datetime(2026, 1, 2, 3, tzinfo=UTC).replace(tzinfo=None),
            pa.timestamp("us"),
            '"2026-01-02T03:00:00.000000"',
        ),
        (b"\xff\x00", pa.binary(), f'"{base64.b64encode(bytes([255, 0])).decode()}"'),
        (b"", pa.binary(), '""'),
        (None, pa.null(), "null"),
        ("\x1f", pa.large_string(), '"\\u001f"'),
    ],
)
def test_scalars_are_spelled_as_the_reading_side_takes_them(value, arrow_type, text):
    assert json_texts(pa.array([value], arrow_type)).to_pylist() == [text]


def test_members_of_an_object_can_be_set_apart():
    values = pa.array([[("a", 1), ("b", None)], []], pa.map_(pa.string(), pa.int32()))

    texts = json_objects(values.keys, values.items, values.offsets, ", ")

    assert texts.to_pylist() == ['{"a":1, "b":null}', "{}"]


def test_what_json_does_not_know_is_refused_before_anything_is_written():
    check_spellable(spark.StructType().add("a", spark.ArrayType(spark.DateType())))

    with pytest.raises(InvalidColumns, match="map<int,string> cannot be written as JSON"):
        check_spellable(
            spark.StructType().add("a", spark.MapType(spark.IntegerType(), spark.StringType()))
        )
    with pytest.raises(InvalidColumns, match="interval"):
        check_spellable(spark.ArrayType(spark.DayTimeIntervalType()))


def test_arrays_of_a_type_that_nobody_expects_are_refused():
    with pytest.raises(InvalidColumns, match="duration"):
        json_texts(pa.array([1], pa.duration("s")))

"""The columns of typed tables: what schemas make of them; payloads lose nothing in them."""

import json
from datetime import date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.spark.archive.typed_table import RESERVED, TypedLayout, ensure_typed_table, layout_of
from skep.spark.decode.typed_columns import (
    MISFIT,
    REST,
    Column,
    ListKind,
    StructKind,
    evolved,
    merged,
)
from skep.spark.decode.typed_rows import TypedRows
from tests.spark.support.catalogs import catalog_in

NAMES = st.sampled_from(["a", "A", "b", "a_string", "a.b", "offset", "1st", "größe", "", "rest"])
SIMPLE = st.sampled_from(
    [
        {"type": "boolean"}, {"type": "integer"}, {"type": "integer", "format": "int32"},
        {"type": "number"}, {"type": "string"}, {"type": "string", "format": "date"},
        {"type": "string", "format": "date-time"}, {"enum": ["x", "y", None]}, {}, True,
        {"type": ["string", "null"]}, {"$ref": "#/properties/a"}, {"not": {}},
    ]
)  # fmt: skip
MEMBERS = st.sampled_from(["x", "y", "X", "z z"])
PROPERTIES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.builds(lambda each: {"type": "array", "items": each}, inner)
        | st.builds(
            lambda each: {"type": "object", "properties": each},
            st.dictionaries(MEMBERS, inner, max_size=3),
        )
        | st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
    ),
    max_leaves=4,
)
RENAMED = st.builds(
    lambda each, former: {**each, "x-renamed-from": former} if isinstance(each, dict) else each,
    PROPERTIES,
    NAMES | st.lists(NAMES, max_size=2),
)
SCHEMAS = st.builds(
    lambda each: {"type": "object", "properties": each},
    st.dictionaries(NAMES, PROPERTIES | RENAMED, max_size=5),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.dates().map(str)
    | st.datetimes().map(lambda each: f"{each.isoformat()}Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def kinds(**properties):
    schema = {"properties": properties, "$defs": {"id": {"type": "integer"}}}
    return {each.name: each.kind for each in evolved((), schema, RESERVED)}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "long"),
        ({"type": "integer", "format": "int32"}, "int"),
        ({"type": ["number", "integer"]}, "double"),
        ({"type": ["null", "boolean"]}, "boolean"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"enum": ["open", "shut"]}, "string"),
        ({"const": 1}, "long"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "long"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "json"),
        ({"$ref": "#/$defs/id"}, "long"),
        ({"$ref": "#/properties/it"}, "json"),
        ({"$ref": "https://example.com/other"}, "json"),
        ({"type": "array", "items": {"type": "string"}}, ListKind("string")),
        ({"type": "array"}, "json"),
        (
            {"type": "object", "properties": {"x": {"type": "integer"}, "y": {}}},
            StructKind((("x", "long"), ("y", "json"))),
        ),
        ({"type": "object", "properties": {"with blank": {}}}, "json"),
        ({"type": "object"}, "json"),
        ({}, "json"),
        (False, "json"),
    ],
)
def test_what_a_schema_allows_decides_the_kind_of_a_column(schema, kind):
    assert kinds(it=schema) == {"it": kind}


def test_a_property_that_changed_its_type_goes_beside():
    columns = evolved((), {"properties": {"a": {"type": "integer"}}}, RESERVED)
    columns = evolved(columns, {"properties": {"a": {"type": "string"}}}, RESERVED)

    assert [(each.name, each.kind, each.is_current) for each in columns] == [
        ("a", "long", False),
        ("a_string", "string", True),
    ]
    again = evolved(columns, {"properties": {"a": {"type": "integer"}}}, RESERVED)
    assert [each.is_current for each in again] == [True, False]


def test_a_renamed_property_keeps_its_column_and_takes_values_under_both_names():
    columns = evolved((), {"properties": {"a": {"type": "integer"}}}, RESERVED)
    renamed = {"b": {"type": "integer", "x-renamed-from": "a"}}
    columns = evolved(columns, {"properties": renamed}, RESERVED)

    assert columns == (Column("b", ("b", "a"), "long"),)
    rows = TypedRows(columns).columns([b'{"a":1}', b'{"b":2}', b'{"a":1,"b":2}'])
    assert (rows["b"], rows[REST]) == ([1, 2, 2], [None, None, '{"a":1}'])


@settings(max_examples=200)
@given(st.lists(SCHEMAS, max_size=4))
def test_schemas_add_widen_and_rename_columns_but_change_none(schemas):
    columns = ()
    for schema in schemas:
        before, columns = columns, evolved(columns, schema, RESERVED)

        assert evolved(columns, schema, RESERVED) == columns
        names = [each.name.lower() for each in columns]
        assert len(set(names) | set(RESERVED)) == len(names) + len(RESERVED)
        for old, new in zip(before, columns, strict=False):
            assert merged(old.kind, new.kind) == new.kind
            assert new.members[-len(old.members) :] == old.members
        assert len(columns) >= len(before)
        wanted = set(schema["properties"])
        assert {each.members[0] for each in columns if each.is_current} == wanted


@settings(max_examples=200)
@given(st.lists(SCHEMAS, max_size=3), st.dictionaries(NAMES | MEMBERS, VALUES, max_size=5))
def test_every_member_is_in_a_column_or_in_the_rest(schemas, payload):
    columns = ()
    for schema in schemas:
        columns = evolved(columns, schema, RESERVED)

    found = TypedRows(columns).columns([json.dumps(payload).encode()])

    by_member = {
        member: found[column.name][0]
        for column in columns
        for member in column.members
        if found[column.name][0] is not None
    }
    rest = json.loads(found[REST][0] or "{}")
    for member, value in payload.items():
        if member in rest:
            assert rest[member] == value
        elif value is not None:
            assert is_value_of(by_member[member], value)
    assert set(rest) <= set(payload)
    assert found[REST][0] is not None or found[MISFIT][0] is None


def is_value_of(found, sent):
    """Tell whether a column holds what was sent; parts of it may be kept as text."""
    if isinstance(found, datetime):
        return found == datetime.fromisoformat(sent)
    if isinstance(found, date):
        return str(found) == sent
    if isinstance(found, list) and isinstance(sent, list):
        return len(found) == len(sent) and all(map(is_value_of, found, sent))
    if isinstance(found, dict) and isinstance(sent, dict):
        return all(is_value_of(each, sent[name]) for name, each in found.items())
    return found == sent or (isinstance(found, str) and json.loads(found) == sent)


@settings(max_examples=15, deadline=None)
@given(schemas=st.lists(SCHEMAS, min_size=1, max_size=3))
def test_a_table_of_iceberg_takes_every_change(schemas, tmp_path_factory):
    with catalog_in(tmp_path_factory.mktemp("lake")) as lake:
        ids = {}
        for schema in schemas:
            table = ensure_typed_table(lake, "orders", schema)

            layout = layout_of(table)
            assert isinstance(layout, TypedLayout)
            present = {each.name: table.schema().find_field(each.name) for each in layout.columns}
            assert len(present) == len(layout.columns)
            for place, column in enumerate(layout.columns):
                assert ids.setdefault(place, present[column.name].field_id) == (
                    present[column.name].field_id
                )

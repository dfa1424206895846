"""JSON Schema of queues: what a schema must be, and what it says about payloads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.limits import JSON_SCHEMA_BYTES_MAX
from skep.model.schemas import InvalidSchema, compile_schema

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "pattern": "^o-[0-9]+$"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "mail": {"format": "email"},
    },
    "$defs": {"line": {"type": "object", "properties": {"count": {"minimum": 1}}}},
}
TREE = {"type": "array", "items": {"$ref": "#"}}


def verdict(schema, payload):
    return compile_schema(schema).validate(json.dumps(payload).encode())


def test_a_payload_that_fits_has_nothing_wrong():
    assert verdict(ORDER, {"id": "o-1", "lines": [{"count": 2}], "mail": "a@b.example"}) is None


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (5, 'payload: the value is not of type "object"'),
        ({}, 'payload: "id" is a required property'),
        ({"id": "7"}, 'payload.id: the value does not match "^o-[0-9]+$"'),
        ({"id": "o-1", "lines": [{}, {"count": 0}]}, "payload.lines[1].count: the value is less"),
        ({"id": "o-1", "mail": "nobody"}, 'payload.mail: the value is not a "email"'),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_by_path_and_reason(payload, error):
    assert verdict(ORDER, payload).startswith(error)


def test_the_payload_itself_is_never_quoted():
    assert "secret" not in verdict(ORDER, {"id": "secret"})


def test_of_many_reasons_the_first_few_are_given():
    found = verdict({"items": {"type": "string"}}, list(range(1000)))

    assert found.count("payload[") == 3
    assert found.endswith("; and more")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "bee"},
        {"minimum": "low"},
        {"$ref": "https://example.org/other.json"},
        {"$ref": "file:///etc/hostname"},
        {"$id": "http://example.org/a", "$ref": "b"},
        {"$ref": "#/nowhere"},
        {"$schema": "https://example.org/my-own-draft"},
        {"pattern": "("},
        {"pattern": "(a)\\1"},
        {"pattern": "(?=a)"},
        {"pattern": "(((a{999}){999}){999})"},
    ],
    ids=str,
)
def test_what_is_no_schema_that_stands_alone_is_refused(schema):
    with pytest.raises(InvalidSchema, match="jsonSchema"):
        compile_schema(schema)


def test_a_schema_may_be_large_but_not_larger():
    frame = len(json.dumps({"title": ""}, separators=(",", ":")))
    compile_schema({"title": "x" * (JSON_SCHEMA_BYTES_MAX - frame)})

    with pytest.raises(InvalidSchema, match="larger than 65536 bytes"):
        compile_schema({"title": "x" * (JSON_SCHEMA_BYTES_MAX - frame + 1)})


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_older_drafts_are_understood(draft):
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "type": "string"}

    assert verdict(schema, "bee") is None
    assert verdict(schema, 1) is not None


def test_a_payload_too_deep_to_look_at_fails_and_nothing_else_does():
    validator = compile_schema(TREE)

    assert validator.validate(b"[" * 500 + b"]" * 500) is None
    assert validator.validate(b"[" * 100_000 + b"]" * 100_000).startswith("payload cannot be")


def test_half_a_surrogate_pair_is_told_and_not_raised():
    assert "cannot be checked" in compile_schema(ORDER).validate(b'{"id": "\\ud800"}')


def test_a_pattern_that_would_backtrack_for_ever_does_not():
    validator = compile_schema({"pattern": "^(a+)+$"})

    assert validator.validate(json.dumps("a" * 100_000 + "b").encode()) is not None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_a_recursive_schema_tells_lists_of_lists_from_the_rest(value):
    def fits(part):
        return isinstance(part, list) and all(map(fits, part))

    assert (verdict(TREE, value) is None) == fits(value)

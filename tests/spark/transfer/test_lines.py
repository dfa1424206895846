"""Lines taken apart into messages, without Spark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.spark.transfer.import_export import cut_line

NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
)


COLUMNS = ("partition", "offset", "transaction_id", "headers", "payload")


def cut(line):
    return dict(zip(COLUMNS, cut_line(line), strict=True))


@given(payload=JSON, partition=NAMES, transaction_id=NAMES, spaces=st.sampled_from(["", " ", "  "]))
def test_a_line_of_an_export_gives_back_the_very_text_of_its_payload(
    payload, partition, transaction_id, spaces
):
    text = json.dumps(payload, separators=("," + spaces, ":" + spaces))
    known = json.dumps(
        {"queue": "q", "partition": partition, "offset": 7, "transaction_id": transaction_id}
    )

    row = cut(f'{known[:-1]},"payload":{text}}}')

    assert row == {
        "partition": partition,
        "offset": 7,
        "transaction_id": transaction_id,
        "headers": None,
        "payload": text,
    }


def test_headers_are_a_map():
    assert cut('{"headers": {"a": "b"}, "payload": 1}')["headers"] == {"a": "b"}


@pytest.mark.parametrize(
    "line",
    ["1", '{"id": 1}', '{"payload": 1', "", "[" * 5000, '{"payload": 1, "partition": 2}'],
    ids=["number", "object", "broken", "empty", "deep", "not a message"],
)
def test_any_other_line_is_a_payload_as_it_is(line):
    row = cut(line)

    assert row["payload"] == line
    assert row["partition"] is None

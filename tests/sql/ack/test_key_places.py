"""A key among the keys of a segment."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUERY = "select array(select skep.key_places($1, $2))"
# Few distinct bytes, so that a key also occurs between two others.
KEYS = st.lists(st.sampled_from([0, 1]).map(lambda byte: bytes([byte])), min_size=16, max_size=16)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    keys=st.lists(
        st.sampled_from([b"\0" * 16, b"\0" * 15 + b"\1", b"\1" + b"\0" * 15]), max_size=8
    ),
    other=KEYS.map(b"".join),
)
def test_only_whole_keys_are_found(log, arun, keys, other):
    for key in {*keys, other}:
        found = arun(log.value(QUERY, b"".join(keys), key))

        assert found == [place for place, each in enumerate(keys) if each == key]


@pytest.mark.parametrize("key", [b"", b"short", None])
async def test_what_is_no_key_is_nowhere(log, key):
    assert await log.value(QUERY, bytes(32), key) == []

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.model.limits import PUSH_ITEMS_MAX

VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def depth_of(value):
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


async def depth(log, text):
    return await log.value("select skep.json_depth($1)", text)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_the_depth_of_many_brackets_is_counted_exactly(log, arun, value):
    text = json.dumps([value, *([[]] * 101)])

    assert arun(depth(log, text)) == max(depth_of(value), 1) + 1


async def test_few_brackets_are_as_deep_as_they_could_be(log):
    assert await depth(log, '{"a": [1, 2], "b": {}}') == 3


async def test_brackets_in_strings_do_not_count(log):
    text = json.dumps(['[{"\\' * 60, '"' * 3, "]" * 200])

    assert await depth(log, text) == 1


async def test_deep_nesting_is_measured(log):
    assert await depth(log, "[" * 501 + "]" * 501) == 501


async def test_a_large_flat_payload_is_flat(log):
    assert await depth(log, json.dumps([{"a": 1}] * PUSH_ITEMS_MAX)) == 2

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BACKLOG = "select skep.partition_backlog($1, $2, $3, $4::text::int8multirange)"


@pytest.mark.parametrize(
    ("head", "tail", "acked", "done", "expected"),
    [
        (0, 1, 0, None, 0),
        (10, 1, 0, None, 10),
        (10, 1, 4, None, 6),
        (10, 1, 10, None, 0),
        (10, 8, 4, None, 3),
        (10, 1, 4, "{[6,8)}", 4),
        (10, 1, 4, "{[6,8),[9,11)}", 2),
        (10, 8, 4, "{[6,9)}", 2),
        (5, 1, 8, "{[10,12)}", 0),
    ],
)
async def test_it_counts_what_is_neither_acknowledged_nor_done_nor_gone(
    log, head, tail, acked, done, expected
):
    assert await log.value(BACKLOG, head, tail, acked, done) == expected


offsets = st.integers(1, 12)


# The function reads no table, so nothing of one example is left to the next.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 12), st.integers(1, 13), st.integers(0, 12), st.sets(offsets, max_size=6))
def test_it_is_the_number_of_offsets_left_one_by_one(log, arun, head, tail, acked, done):
    ranges = "{" + ",".join(f"[{each},{each}]" for each in sorted(done)) + "}"

    counted = arun(log.value(BACKLOG, head, tail, acked, ranges))

    assert counted == len([n for n in range(max(acked + 1, tail), head + 1) if n not in done])

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import sized

EXAMPLES = sized(60, large=200)


def undone_range(log, acked, done, batch, last):
    query = "select * from skep.undone_range($1, $2::text::int8multirange, $3, $4)"
    return log.row(query, acked, done, batch, last)


@pytest.mark.parametrize(
    ("done", "batch", "last", "expected"),
    [
        (None, 3, 9, (3, 3)),
        (None, 30, 9, (9, 9)),
        ("{[5,6)}", 3, 9, (3, 3)),
        ("{[2,4)}", 3, 9, (5, 3)),
        ("{[2,4),[6,8)}", 3, 9, (7, 3)),
        ("{[2,9)}", 3, 9, (9, 2)),
        ("{[2,9)}", 1, 9, (8, 1)),
        ("{[2,10)}", 5, 9, (9, 1)),
    ],
)
async def test_done_messages_do_not_use_up_the_batch(log, done, batch, last, expected):
    assert tuple(await undone_range(log, 0, done, batch, last)) == expected


def test_the_range_holds_as_many_as_asked_for_and_has_nothing_done_behind_it(log, arun):
    @given(
        done=st.sets(st.integers(2, 15)),
        batch=st.integers(1, 8),
        last=st.integers(1, 15),
    )
    @settings(max_examples=EXAMPLES, deadline=None)
    def compare(done, batch, last):
        spelled = ",".join(f"[{n},{n + 1})" for n in done).join("{}")
        upto, count = arun(undone_range(log, 0, spelled, batch, last))
        undone = [n for n in range(1, last + 1) if n not in done]
        end = undone[batch - 1] if batch <= len(undone) else last
        while end + 1 in done:
            end += 1
        assert (upto, count) == (end, min(batch, len(undone)))

    compare()

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def pass_done(log, acked, done):
    return log.row(
        "select acked, done::text from skep.pass_done($1, $2::text::int8multirange)", acked, done
    )


@pytest.mark.parametrize(
    ("acked", "done", "expected"),
    [
        (3, None, (3, None)),
        (3, "{[6,8)}", (3, "{[6,8)}")),
        (3, "{[4,6)}", (5, None)),
        (3, "{[4,6),[7,8)}", (5, "{[7,8)}")),
        (3, "{[1,3)}", (3, None)),
        (3, "{[1,9)}", (8, None)),
        (6, "{[1,3),[5,8),[9,10)}", (7, "{[9,10)}")),
    ],
)
async def test_the_position_moves_over_what_is_done_behind_it(log, acked, done, expected):
    assert tuple(await pass_done(log, acked, done)) == expected


def test_no_message_is_passed_that_is_not_done_and_none_stays_that_is(log, arun):
    @given(acked=st.integers(0, 12), done=st.sets(st.integers(1, 12)))
    @settings(max_examples=100, deadline=None)
    def compare(acked, done):
        spelled = ",".join(f"[{n},{n + 1})" for n in done).join("{}")
        found_acked, found_done = arun(pass_done(log, acked, spelled))
        expected = acked
        while expected + 1 in done:
            expected += 1
        left = arun(
            log.value("select skep.offsets_in($1::text::int8multirange, 0, 20)", found_done)
        )
        assert found_acked == expected
        assert set(left or ()) == {n for n in done if n > expected}

    compare()

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.jobs import Retry
from skep.model.errors import BadRequest

CHANCE = random.Random(7)


def test_case_21_delays_double_up_to_the_cap():
    retry = Retry(initial_s=10, multiplier=2, cap_s=300, jitter=0)

    delays = [retry.delay_s(failures, CHANCE) for failures in range(1, 8)]

    assert delays == [10, 20, 40, 80, 160, 300, 300]


@given(
    failures=st.integers(1, 10_000),
    initial_s=st.floats(0, 1000),
    multiplier=st.floats(1, 10),
    cap_s=st.floats(0, 10_000),
    jitter=st.floats(0, 1),
)
def test_case_21_jitter_stays_within_its_share(failures, initial_s, multiplier, cap_s, jitter):
    retry = Retry(initial_s=initial_s, multiplier=multiplier, cap_s=cap_s, jitter=jitter)
    exact_s = Retry(initial_s=initial_s, multiplier=multiplier, cap_s=cap_s, jitter=0).delay_s(
        failures, CHANCE
    )

    delay_s = retry.delay_s(failures, CHANCE)

    assert exact_s * (1 - jitter) - 1e-9 <= delay_s <= exact_s * (1 + jitter) + 1e-9
    assert exact_s <= cap_s


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": 0}, {"initial_s": -1}, {"cap_s": -1}, {"multiplier": 0.5}, {"jitter": 1.1}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(BadRequest):
        Retry(**wrong)

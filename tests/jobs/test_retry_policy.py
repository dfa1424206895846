import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.jobs import Fail, Reschedule, Retry
from skep.jobs.identifiers import new_id
from skep.jobs.store import Claimed
from skep.jobs.worker.retry import ERROR_LENGTH_MAX, settle_failure
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


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def failed_with(error, *, failures=0, max_attempts=3):
    claimed = Claimed(
        job_id=new_id(),
        chain_id=new_id(),
        type_id=1,
        position=0,
        attempt=9,
        failures=failures,
        max_attempts=max_attempts,
        input="null",
        trace=None,
        chain_trace=None,
        due_at=NOW,
        deadline_at=None,
        blockers=None,
        claimed_at=NOW,
    )
    settlement = settle_failure(claimed, error, Retry(initial_s=10, jitter=0), CHANCE)
    assert (settlement.job_id, settlement.attempt) == claimed.token
    return settlement


@pytest.mark.parametrize(("failures", "delay_s"), [(0, 10), (1, 20)])
def test_an_exception_runs_the_job_again_after_the_delay_of_its_policy(failures, delay_s):
    settlement = failed_with(ValueError("oh"), failures=failures)

    assert (settlement.outcome, settlement.delay_s) == ("retry", delay_s)
    assert settlement.error.endswith("ValueError: oh\n")


def test_the_last_attempt_fails_the_job():
    settlement = failed_with(ValueError("x" * ERROR_LENGTH_MAX), failures=2)

    assert (settlement.outcome, len(settlement.error)) == ("failed", ERROR_LENGTH_MAX)


def test_giving_up_fails_the_job_though_attempts_are_left():
    assert failed_with(Fail("no such customer")).outcome == "failed"


def test_a_job_that_asks_to_run_later_does_so_whatever_its_failures():
    later = failed_with(Reschedule(after=timedelta(minutes=1)), failures=2)
    then = failed_with(Reschedule(at=NOW), failures=2)

    assert (later.outcome, later.delay_s, later.error) == ("rescheduled", 60, None)
    assert (then.outcome, then.at) == ("rescheduled", NOW)

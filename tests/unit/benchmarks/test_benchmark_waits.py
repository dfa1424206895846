"""The pure parts of the benchmarks of waiting: verdicts on wake-ups, and on a failing partition."""

import asyncio

import pytest

from benchmarks.errors import ScenarioFailed
from benchmarks.load import Target
from benchmarks.poison import POISON, Ledger, Round, ratio_of_p99
from benchmarks.wakeups import Place, Waits

ANYWHERE = Target("127.0.0.1", 1)
PLACE = Place("here", ANYWHERE, ANYWHERE, goal_ms=200.0)


def test_one_late_poll_in_a_hundred_is_allowed_and_two_are_not():
    one_late = Waits.of("push", PLACE, [9.0] + [0.1] * 99)
    two_late = Waits.of("push", PLACE, [9.0, 9.0] + [0.1] * 98)

    assert (one_late.is_met, two_late.is_met) == (True, False)
    assert one_late.at(100) == 9_000


def test_a_wait_as_long_as_the_goal_misses_it():
    assert not Waits.of("push", PLACE, [0.2]).is_met


def test_no_waits_have_no_verdict():
    with pytest.raises(ScenarioFailed, match="no poll was answered after push"):
        _ = Waits.of("push", PLACE, []).is_met


def a_round(p99_ms, *, is_poisoned):
    return Round(is_poisoned, [p99_ms], failures=0, dead_letters=0)


def test_the_ratio_is_that_of_the_medians_of_both_kinds():
    healthy = [a_round(ms, is_poisoned=False) for ms in (10, 20, 900)]
    poisoned = [a_round(ms, is_poisoned=True) for ms in (1, 30, 40)]

    assert ratio_of_p99([*healthy, *poisoned]) == 1.5


def message(partition, due_s):
    return {"partition": partition, "data": {"due": due_s}}


async def test_a_ledger_counts_other_partitions_after_the_warm_up_and_ends_with_the_last_letter():
    ledger = Ledger(expected=4, counts_from_s=100.0)
    ledger.completed(message("p1", 99.0), 99.5)
    ledger.completed(message("p1", 100.0), 100.25)
    ledger.completed(message(POISON, 101.0), 101.5)
    ledger.failed(3, dead_letters=0)
    is_done_early = ledger.is_done.is_set()
    ledger.failed(1, dead_letters=1)
    await asyncio.wait_for(ledger.is_done.wait(), 1)

    assert not is_done_early
    assert (ledger.milliseconds, ledger.failures) == ([250.0], 4)

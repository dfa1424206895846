"""The pure parts of a comparison of two checkouts: ratios, limits and verdicts."""

import pytest

from benchmarks.against import Comparison, Layout, limit_of_layouts, packages_of, ratios_of
from benchmarks.bench import Outcome
from benchmarks.goals import COMPARED, CPU, Verdict, comparison_goals, evaluate
from benchmarks.scenarios import SCENARIOS
from benchmarks.stats import Spread


def a_round(cost, **changes):
    return {"push-1x100": Outcome(figures={CPU: cost, "p99_ms": 8.0}, **changes)}


def test_a_ratio_is_that_of_neighbouring_turns_and_the_median_of_rounds_is_shown():
    old, new = [a_round(100.0), a_round(300.0), a_round(100.0)], [a_round(50.0)] * 3

    found = Comparison([], old, new, []).ratio("push-1x100", CPU)

    assert found == Spread(median=0.5, low=50 / 300, high=0.5, count=3)


def test_a_side_with_errors_has_no_ratio():
    assert ratios_of(a_round(100.0), a_round(50.0, errors={"status 503": 1})) == {}


def test_a_figure_that_was_not_measured_has_no_ratio():
    ratios = ratios_of(a_round(None), a_round(50.0))

    assert ratios["push-1x100"][CPU] is None
    assert ratios["push-1x100"]["p99_ms"] == 1.0


def test_the_goal_is_a_gain_or_that_nothing_got_worse():
    rounds = [ratios_of(a_round(100.0), a_round(60.0))]

    (row,) = evaluate(rounds, comparison_goals(["push-1x100"], None))
    (other,) = comparison_goals(["idle"], None)

    assert (row.goal.limit, row.verdict) == (0.55, Verdict.MISSED)
    assert other.judge(1.0) is Verdict.MET


@pytest.mark.parametrize(
    ("layout", "limit"), [((2, 1), 1.2), ((4, 1), 1.3), ((1, 2), 1.4), ((1, 1), None)]
)
def test_more_processes_have_a_limit_of_their_own(layout, limit):
    assert limit_of_layouts(Layout(), Layout(*layout)) == limit


def test_what_a_comparison_runs_by_default_exists():
    assert set(COMPARED) <= {scenario.name for scenario in SCENARIOS}


def test_a_checkout_may_be_a_folder(tmp_path):
    with packages_of(str(tmp_path)) as source:
        assert source == tmp_path / "src"

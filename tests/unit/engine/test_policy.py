"""A batch policy is checked when it is built."""

from dataclasses import replace

import pytest

from skep.engine.policy import BatchPolicy

POLICY = BatchPolicy(preferred_weight=1, hold_s_max=0.0, weight_max=1, concurrency_max=1)


def test_the_smallest_bounds_are_allowed():
    policy = replace(POLICY, calls_per_partition=1, partitions_per_call=1, units_max=1)

    assert policy.partitions_per_call == 1


@pytest.mark.parametrize(
    "bound",
    [
        "preferred_weight",
        "weight_max",
        "concurrency_max",
        "calls_per_partition",
        "partitions_per_call",
        "units_max",
    ],
)
def test_a_bound_below_one_is_refused_by_name(bound):
    with pytest.raises(ValueError, match=f"{bound} must be at least 1"):
        replace(POLICY, **{bound: 0})


@pytest.mark.parametrize("hold_s_max", [-0.001, float("nan")])
def test_a_hold_that_is_no_duration_is_refused(hold_s_max):
    with pytest.raises(ValueError, match="hold_s_max"):
        replace(POLICY, hold_s_max=hold_s_max)

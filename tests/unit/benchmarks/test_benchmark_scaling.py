import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling import Costs, Shape, expected_segments, forecast

MEASURED_US = {
    # messages per request, clients, workers: broker and PostgreSQL
    (1, 64, 1): 38.0,
    (1, 32, 1): 48.0,
    (1, 64, 2): 65.5,
    (10, 64, 1): 7.1,
    (10, 32, 1): 9.8,
    (10, 64, 2): 12.4,
}


@pytest.mark.parametrize("measured", MEASURED_US)
def test_the_simulation_repeats_what_was_measured_on_two_cores(measured):
    items, clients, workers = measured
    found = forecast(Shape(2, workers, items, clients=clients), Costs())

    assert found.worker_us + found.postgres_us == pytest.approx(MEASURED_US[measured], rel=0.2)


@given(messages=st.floats(1, 10_000), partitions=st.integers(1, 10_000))
def test_messages_fall_into_no_more_partitions_than_there_are(messages, partitions):
    assert 0 < expected_segments(messages, partitions) <= min(messages, partitions) * 1.000001


def test_another_worker_is_of_use_until_calls_wait_for_each_other():
    one, two, many = (
        forecast(Shape(64, workers, 10, clients=256), Costs()) for workers in (1, 2, 12)
    )

    assert one.messages_per_s < two.messages_per_s
    assert (one.wall, many.wall) == ("workers", "partition locks and commits")

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.app.processes import supervisor as restart
from skep.app.processes.supervisor import RestartHistory


@given(deaths=st.lists(st.tuples(st.floats(0, 60), st.booleans()), max_size=30))
def test_a_pause_is_never_longer_than_its_bound(deaths):
    history = RestartHistory()
    now = 0.0
    for lived_s, was_ready in deaths:
        now += lived_s
        pause_s = history.pause_after_exit(now, lived_s=lived_s, was_ready=was_ready)
        if pause_s is None:
            return
        assert restart.PAUSE_S_FIRST <= pause_s <= restart.PAUSE_S_MAX
        now += pause_s


def test_pauses_double_and_a_calm_life_makes_them_short_again():
    history = RestartHistory()

    pauses = [history.pause_after_exit(0, lived_s=1, was_ready=True) for _ in range(8)]
    after_calm = history.pause_after_exit(0, lived_s=restart.CALM_S, was_ready=True)

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert after_calm == restart.PAUSE_S_FIRST


def test_a_worker_that_served_is_never_given_up():
    history = RestartHistory()

    pauses = [history.pause_after_exit(0, lived_s=0, was_ready=True) for _ in range(100)]

    assert None not in pauses


@pytest.mark.parametrize(("apart_s", "is_given_up"), [(2.5, True), (2.6, False)])
def test_only_start_up_deaths_in_quick_succession_are_hopeless(apart_s, is_given_up):
    history = RestartHistory()

    pauses = [
        history.pause_after_exit(number * apart_s, lived_s=0, was_ready=False)
        for number in range(restart.STARTUP_EXITS_MAX)
    ]

    assert (pauses[-1] is None) == is_given_up
    assert None not in pauses[:-1]

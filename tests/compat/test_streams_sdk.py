"""Queen's streams SDK, unmodified, against this broker."""

import pytest

pytestmark = pytest.mark.slow

SCENARIOS = "stream_scenarios.py"


def test_a_stateless_stream_maps_every_message_once(play):
    assert play("map_every_message") == {"numbers": [0, 0, 10, 10, 20, 20, 30, 30, 40, 40]}


def test_windows_of_event_time_survive_their_runner(play):
    assert play("sum_by_event_time") == {
        "windows": [
            {"count": 3, "sum": 7, "start": 0},
            {"count": 1, "sum": 8, "start": 60_000},
        ]
    }


def test_windows_that_nobody_feeds_are_flushed(play):
    assert play("flush_idle_windows") == {"total": 20, "is_flushed": True}


def test_a_gate_lets_through_in_order_what_it_held_back(play):
    assert play("hold_back_at_a_gate") == {"numbers": [0, 1, 2, 3, 4, 5], "was_denied": True}


def test_a_changed_pipeline_is_refused_until_it_resets(play):
    assert "config_hash mismatch" in play("change_the_pipeline")["refused"]


def test_sliding_windows_count_a_message_in_each_that_covers_it(play):
    assert play("slide_a_window") == {
        "windows": [
            ["a", 8_000, 2],
            ["a", 10_000, 3],
            ["a", 12_000, 1],
            ["b", 8_000, 1],
            ["b", 10_000, 1],
        ]
    }


def test_windows_align_to_the_clock(play):
    assert play("align_a_window_to_the_clock") == {"windows": [["a", 0, 3], ["b", 0, 1]]}


def test_sessions_close_when_nothing_came_for_long_enough(play):
    assert play("close_sessions") == {"windows": [["a", 11_000, 3], ["b", 11_000, 1]]}


def test_a_stream_without_a_sink_calls_for_each_message(play):
    assert play("call_for_each") == {"seen": [0, 1, 2, 3, 4]}


def test_a_gate_limits_by_a_sliding_window(play):
    assert play("limit_by_a_sliding_window") == {"numbers": [0, 1, 2, 3], "was_denied": True}

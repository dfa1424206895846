"""The streams SDK that Queen publishes, unmodified, against this broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCENARIOS = Path(__file__).with_name("stream_scenarios.py")
SCENARIO_S = 90


@pytest.fixture(params=["0.15.0", "1.3.0"])
def play(request, install_client, broker, queue):
    """Play a scenario on a version of the client and return what it saw."""

    def play(scenario):
        directory = install_client(request.param)
        run = subprocess.run(
            [sys.executable, str(SCENARIOS), scenario, broker.url, queue],
            env={**os.environ, "PYTHONPATH": str(directory)},
            capture_output=True,
            text=True,
            timeout=SCENARIO_S,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return json.loads(run.stdout.splitlines()[-1])

    return play


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

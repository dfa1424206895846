import pytest

from skep.broker.groups.progress import LAGGING_S, state_of
from skep.broker.groups.seek import choose_aim
from skep.model.errors import BadRequest

LATE = LAGGING_S + 1
FACTS = {"is_paused": False, "backlog": 1, "lag_s": 0, "is_held": False, "ready_s": 0}


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "Stable"),
        ({"backlog": 0}, "Idle"),
        ({"is_paused": True, "lag_s": LATE, "ready_s": LATE}, "Paused"),
        ({"lag_s": LAGGING_S, "ready_s": LAGGING_S}, "Stable"),
        ({"lag_s": LATE}, "Lagging"),
        ({"lag_s": LATE, "ready_s": LAGGING_S}, "Lagging"),
        ({"lag_s": LATE, "ready_s": LATE}, "Dead"),
        ({"lag_s": LATE, "ready_s": LATE, "is_held": True}, "Lagging"),
        ({"backlog": 0, "ready_s": LATE}, "Idle"),
    ],
    ids=str,
)
def test_a_group_is_summed_up_in_one_word(facts, state):
    assert state_of(**{**FACTS, **facts}) == state


@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"to_end": True, "offset": 1},
        {"to_start": True, "timestamp": "2026-01-01"},
        {"offset": -1},
        {"offset": 1 << 62},
        {"timestamp": "soon"},
    ],
    ids=str,
)
def test_a_seek_needs_exactly_one_aim_that_exists(wishes):
    with pytest.raises(BadRequest):
        choose_aim(**wishes)

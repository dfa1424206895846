"""Positions in a tail: what a client may bring back, and what it may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.pop.tail import Position
from skep.model.errors import BadRequest

xids = st.lists(st.integers(1, 2**63 - 1), min_size=2, unique=True).map(sorted)
snapshots = st.builds(
    lambda xids, is_oldest_running: (
        f"{xids[0]}:{xids[-1]}:{','.join(map(str, xids[not is_oldest_running : -1]))}"
    ),
    xids,
    st.booleans(),
) | st.integers(1, 2**63 - 1).map(lambda xid: f"{xid}:{xid}:")
numbers = st.integers(0, 2**63 - 1)


@given(snapshots, snapshots, numbers, numbers)
def test_a_position_comes_back_as_it_was_given(after, until, partition_id, offset):
    position = Position(after, until, partition_id, offset)

    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1:1:~1:1:~0",
        "1:1:~1:1:~0~0~0",
        "1:1:~1:1:~0~-1",
        "0:1:~1:1:~0~0",
        "2:1:~1:1:~0~0",
        "1:3:3~1:1:~0~0",
        "2:4:1~1:1:~0~0",
        "1:9:3,2~1:1:~0~0",
        "1:9:3,3~1:1:~0~0",
        "1:9:,~1:1:~0~0",
        "1:9:2,~1:1:~0~0",
        "1:1:~9:1:~0~0",
        f"1:{2**63}:~1:1:~0~0",
        f"1:1:~1:1:~{2**63}~0",
        f"1:1:~1:1:~0~{2**63}",
        "1:" + "9" * 5000 + ":~1:1:~0~0",
        "1:9:" + "9" * 5000 + "~1:1:~0~0",
        "\u0661:1:~1:1:~0~0",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(BadRequest, match="not one of this stream"):
        Position.parse(text)


@given(st.text(alphabet="0123456789:,~"))
def test_no_text_breaks_the_reader(text):
    try:
        position = Position.parse(text)
    except BadRequest:
        return
    assert Position.parse(str(position)) == position

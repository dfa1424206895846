"""What a message is to one group."""

import pytest

from tests.sql.support.log import NOON

QUERY = """
    select skep.delivery_state(
      5, $1, $2::text::int8multirange, $3, $4::text::int8multirange, $5, $6, $7)
    """
LATER = NOON.replace(hour=13)
EARLIER = NOON.replace(hour=11)


@pytest.mark.parametrize(
    ("state", "acked", "done", "leased", "nacked", "available_at", "failed"),
    [
        ("waiting", 4, None, None, None, EARLIER, None),
        ("waiting", 4, None, None, None, None, None),
        ("waiting", 3, "{[6,7)}", 4, "{[4,5)}", LATER, [4]),
        ("done", 5, None, None, None, None, None),
        ("done", 3, "{[5,6)}", 7, None, LATER, None),
        ("leased", 4, None, 5, None, LATER, None),
        ("leased", 4, None, 5, "{[6,7)}", LATER, [5]),
        ("waiting", 4, None, 5, None, EARLIER, None),
        ("retrying", 4, None, 9, "{[5,6)}", LATER, [5]),
        ("retrying", 4, None, None, None, LATER, [4, 5]),
        ("waiting", 4, None, None, None, EARLIER, [5]),
    ],
)
async def test_the_cursor_decides(log, state, acked, done, leased, nacked, available_at, failed):
    cursor = (acked, done, leased, nacked, available_at, failed)

    assert await log.value(QUERY, *cursor, NOON) == state

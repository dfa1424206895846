from datetime import timedelta

import pytest

INT_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("failures", "delay_ms", "max_ms", "pause_ms"),
    [
        (1, 1000, 300_000, 1000),
        (2, 1000, 300_000, 2000),
        (5, 1000, 300_000, 16_000),
        (10, 1000, 300_000, 300_000),
        (10, 0, 300_000, 0),
        (1, 600_000, 300_000, 600_000),
        (9, 600_000, 300_000, 600_000),
        (3, 1000, 0, 1000),
        (INT_MAX, INT_MAX, INT_MAX, INT_MAX),
        (INT_MAX, 1, INT_MAX, INT_MAX),
        (0, 1000, 300_000, 1000),
    ],
)
async def test_the_pause_doubles_up_to_its_bound_and_never_overflows(
    log, failures, delay_ms, max_ms, pause_ms
):
    pause = await log.value("select skep.retry_pause($1, $2, $3)", failures, delay_ms, max_ms)

    assert pause == timedelta(milliseconds=pause_ms)

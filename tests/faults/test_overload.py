"""More than the broker can do: everybody gets an answer, and order is kept."""

import sys

import pytest

from tests.faults.instances import well_ending_instance
from tests.faults.ledger import require_good
from tests.faults.load import GROUP
from tests.faults.overload import SETTINGS, Overload, until_normal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of workers in /proc"),
]

FEW = 6
MEMORY_MIB_MAX = 400
RECOVERY_S_MAX = 5


async def test_three_times_the_capacity_is_answered_201_202_or_429_and_in_order(
    database_url, queue
):
    with well_ending_instance(database_url, "--workers", "1", **SETTINGS) as broker:
        overload = Overload(broker, queue)
        normal_per_s = await overload.press(1.5, FEW)
        normal = set(overload.statuses)
        await overload.press(5)
        recovery_s = await until_normal(
            overload, normal_per_s, producers=FEW, within_s=2 * RECOVERY_S_MAX
        )
        await overload.consume()

    require_good(overload.ledger, [GROUP])
    assert normal == {201}
    assert {202, 429} <= set(overload.statuses) <= {201, 202, 429}, overload.statuses
    assert overload.unanswered == 0
    assert overload.memory_mib < MEMORY_MIB_MAX
    assert recovery_s < RECOVERY_S_MAX

"""More than the broker can do: everybody gets an answer, and order is kept."""

import gc
import sys
import weakref
from collections import Counter

import pytest

from tests.faults.support.in_process import item, running
from tests.faults.support.instances import well_ending_instance
from tests.faults.support.ledger import require_good
from tests.faults.support.load import GROUP
from tests.faults.support.overload import SETTINGS, Overload, until_served
from tests.sql.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of workers in /proc"),
]

FEW = 6
MEMORY_MIB_MAX = 400
RECOVERY_S_MAX = 60
"""A bound for a broker that never recovers, not a promise: the machine may be busy."""
PARTITIONS = 7


async def test_three_times_the_capacity_is_answered_201_202_or_429_and_in_order(
    database_url, queue
):
    with well_ending_instance(database_url, "--workers", "1", **SETTINGS) as broker:
        overload = Overload(broker, queue)
        await overload.press(1.5, FEW)
        normal = set(overload.statuses)
        await overload.press(5)
        recovery_s = await until_served(overload, producers=FEW, within_s=RECOVERY_S_MAX)
        await overload.consume()

    require_good(overload.ledger, [GROUP])
    assert normal == {201}
    assert {202, 429} <= set(overload.statuses) <= {201, 202, 429}, overload.statuses
    assert overload.unanswered == 0
    assert overload.memory_mib < MEMORY_MIB_MAX
    assert recovery_s < RECOVERY_S_MAX


class ForgottenClient:
    """Notes how it was answered where others can read it, and holds nothing."""

    prefers_async = True

    def __init__(self, answers):
        self._answers = answers

    def respond(self, status, body=b"", *, headers=b""):
        self._answers[status] += 1
        return True

    def refuse(self, error):
        self._answers[type(error).__name__] += 1


async def test_a_request_that_was_refused_leaves_nothing_behind(database_url, queue):
    # What only the collector of cycles can free stays for minutes: it runs rarely on purpose.
    answers, payload, pushes = Counter(), b'"%b"' % (b"x" * 200_000), 60
    gc.disable()
    try:
        async with running(database_url, engine_weight_mib=1, overload_wait_s=0) as broker:
            await broker.push(*(item(queue, "first", partition=f"{n}") for n in range(PARTITIONS)))
            left = [send(broker, queue, n, payload, answers) for n in range(pushes)]
            await eventually(lambda: answers.total() == pushes)

            await eventually(lambda: not any(each() for each in left))
    finally:
        gc.enable()

    assert answers["Overloaded"] > 10


def send(broker, queue, number, payload, answers):
    """Push without keeping the client; return what tells whether somebody else keeps it."""
    client = ForgottenClient(answers)
    items = [item(queue, f"{number}", partition=f"{number % PARTITIONS}", payload=payload)]
    broker.broker.push.push.push(items, client, size=len(payload))
    return weakref.ref(client)

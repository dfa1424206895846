"""A pipeline whose driver is killed: every message is in exactly one window, once.

The long form, with other victims, is `python -m benchmarks.spark_faults`.
"""

import random

import pytest

from benchmarks.spark_faults import Faults, LedgerBroken, check_ledger
from tests.spark.pipelines import messages_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_killed_driver_loses_and_repeats_nothing(database_url, tmp_path, writer):
    faults = Faults(database_url, tmp_path, chance=random.Random(4))

    windows = faults.run(["driver", "commit"])

    assert faults.restarts >= 2
    assert windows > 1
    # The ledger would notice: one window more than there should be, and one message less.
    writer.push(messages_of(writer, "faults-out")[0][1], queue="faults-out", partition="a")
    with pytest.raises(LedgerBroken, match=r"twice|were found"):
        check_ledger(database_url, faults.feed.count)
    with pytest.raises(LedgerBroken):
        check_ledger(database_url, faults.feed.count + 1)

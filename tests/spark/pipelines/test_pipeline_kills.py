"""A pipeline whose driver is killed: every message is in exactly one window, once.

The long form, with other victims, is `python -m benchmarks.spark.faults`.
"""

import random

import pytest

from benchmarks.spark.archive_faults import check_archive
from benchmarks.spark.faults import PipelineCampaign, TableCampaign, check_ledger
from benchmarks.spark.victims import LedgerBroken
from tests.spark.support.pipelines import messages_of
from tests.support.sizes import sized

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("kind", [PipelineCampaign, TableCampaign], ids=["queue", "table"])
def test_a_killed_driver_loses_and_repeats_nothing(kind, database_url, tmp_path, writer):
    campaign = kind(database_url, tmp_path, chance=random.Random(4))

    strikes = sized(["commit"], large=["staged", "worker", "commit"])
    campaign.run(strikes)
    windows = check_ledger(database_url, campaign.feed.count)

    assert sum(campaign.done.values()) == len(strikes)
    assert windows > 1
    # The ledger would notice: one window more than there should be, and one message less.
    writer.push(messages_of(writer, "faults-out")[0][1], queue="faults-out", partition="a")
    with pytest.raises(LedgerBroken, match=r"twice|were found"):
        check_ledger(database_url, campaign.feed.count)
    with pytest.raises(LedgerBroken):
        check_ledger(database_url, campaign.feed.count + 1)


@pytest.mark.parametrize("found", [["tx-0"], ["tx-0", "tx-1", "tx-1"], ["tx-0", "tx-1", "tx-2"]])
def test_the_ledger_of_the_archive_notices_what_is_missing_or_too_much(found):
    check_archive(["tx-1", "tx-0"], 2)

    with pytest.raises(LedgerBroken):
        check_archive(found, 2)

"""Which epoch is stored already, for a write and what it writes to."""

import pytest

from tests.sql.support.staging import WRITE, Staging


@pytest.mark.parametrize(
    ("recorded", "asked", "epoch"),
    [("queue:bees", "queue:bees", 7), ("queue:bees", "queue:wasps", -1), ("", "queue:bees", 7)],
)
async def test_an_epoch_counts_for_its_target_or_for_all(log, staging, recorded, asked, epoch):
    await Staging(log, target=recorded).commit(epoch=7, staged=0)

    assert await log.value("select skep.committed_epoch($1, $2)", WRITE, asked) == epoch
    assert await log.value("select skep.committed_epoch('another', $1)", asked) == -1

import pytest

from tests.sql.support.rollups import MINUTE

GROWTH = "select * from skep.group_growth($1, 600)"


async def test_growth_is_the_slope_of_the_samples(rollups, log):
    groups = [await log.subscribe("hive", name) for name in ("bees", "ants", "wasps")]
    await log.advance(600)
    samples = {groups[0]: (0, 60, 120), groups[1]: (90, 60, 30), groups[2]: (5,)}
    for group, backlogs in samples.items():
        for minutes, backlog in enumerate(reversed(backlogs)):
            await log.execute(
                "insert into skep.group_minute values ($1, $2, $3, 0)",
                group,
                log.now - minutes * MINUTE,
                backlog,
            )
    await log.execute(
        "insert into skep.group_minute values ($1, $2, 0, 0)", groups[2], log.now - 11 * MINUTE
    )

    rows = {row["group_id"]: row["per_second"] for row in await log.rows(GROWTH, groups)}

    assert rows == {groups[0]: pytest.approx(1), groups[1]: pytest.approx(-0.5)}

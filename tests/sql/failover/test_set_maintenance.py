"""Switching maintenance modes."""

import asyncpg
import pytest

SET = "select skep.set_maintenance($1, $2)"


async def test_a_mode_can_be_switched_as_often_as_one_likes(log):
    for enabled in (True, True, False):
        await log.rows(SET, "push", enabled)

    query = "select enabled, changed_at from skep.maintenance_mode where mode = 'push'"
    assert tuple(await log.row(query)) == (False, log.now)


async def test_there_are_no_other_modes(log):
    with pytest.raises(asyncpg.CheckViolationError):
        await log.rows(SET, "coffee", True)

import asyncpg
import pytest

from tests.sql.support.operating import ACK, PUSH, defer

CALL = "select skep.refuse_deferred($1, $2)"


@pytest.mark.parametrize(("type_", "item"), [(PUSH, "2"), (ACK, "3")])
async def test_the_first_partition_in_which_something_waits_is_named(log, type_, item):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, b, type_=type_)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.value(CALL, [a, b], [b])

    assert (refused.value.sqlstate, refused.value.message) == ("SK409", "deferred")
    assert refused.value.detail == item


async def test_what_waits_of_the_other_kind_does_not_matter(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a, type_=ACK)
    await defer(log, b, type_=PUSH)

    await log.value(CALL, [a], [b])

import pytest

from tests.sql.support.log import body_of, envelope

QUERY = "select skep.read_envelope($1, $2)"
NUL = r'{"a":"\u0000"}'


@pytest.fixture
def partition(arun, log):
    """A partition with a to c in one segment and d, whose payload is odd, in another."""

    async def fill():
        partition, _ = await log.partition()
        await log.push(partition, *"abc")
        await log.push_bodies({partition: "d"}, {partition: body_of([envelope("d", NUL)])})
        return partition

    return arun(fill())


async def test_a_message_is_read_as_it_was_stored(log, partition):
    assert await log.value(QUERY, partition, 2) == envelope("b")
    assert await log.value(QUERY, partition, 4) == envelope("d", NUL)


@pytest.mark.parametrize("offset", [-1, 0, 5, 2**62, None])
async def test_an_offset_nobody_has_is_no_message(log, partition, offset):
    assert await log.value(QUERY, partition, offset) is None


async def test_an_unknown_partition_has_no_message(log, partition):
    assert await log.value(QUERY, partition + 1, 1) is None


async def test_a_deleted_message_is_none(log, partition):
    body = body_of([envelope("a"), "null", envelope("c")])
    await log.execute(
        "update skep.segment set body = $2 where partition_id = $1 and first = 1", partition, body
    )

    assert await log.value(QUERY, partition, 2) is None
    assert await log.value(QUERY, partition, 3) == envelope("c")

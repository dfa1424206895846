import pytest

from tests.sql.support.spans import SpanReader, address


@pytest.fixture
def reader(log):
    return SpanReader(log)


@pytest.fixture
def partition(log, arun):
    """A partition with segments of 3, 1, 2 and 4 messages."""

    async def fill():
        partition, _ = await log.partition()
        for names in ("abc", "d", "ef", "ghij"):
            await log.push(partition, *names)
        return partition

    return arun(fill())


def sizes(portions):
    return [(row["last"][2], row["segments"], row["messages"]) for row in portions]


async def test_without_limits_there_is_one_portion(log, reader, partition):
    (portion,) = await reader.divided()

    assert portion["last"] == await address(log, partition, 7)
    assert sizes([portion]) == [(7, 4, 10)]
    assert portion["bytes"] == await log.value("select sum(octet_length(body)) from skep.segment")


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1, [(1, 1, 3), (4, 1, 1), (5, 1, 2), (7, 1, 4)]),
        (4, [(4, 2, 4), (5, 1, 2), (7, 1, 4)]),
        (6, [(5, 3, 6), (7, 1, 4)]),
        (10, [(7, 4, 10)]),
    ],
)
async def test_portions_have_at_most_their_share_but_whole_segments(
    reader, partition, share, expected
):
    assert sizes(await reader.divided(share=share)) == expected


@pytest.mark.parametrize(
    ("messages", "last"), [(1, 1), (3, 1), (4, 4), (5, 4), (6, 5), (9, 5), (10, 7), (99, 7)]
)
async def test_a_limit_of_messages_ends_the_walk_and_the_first_segment_fits(
    reader, partition, messages, last
):
    (portion,) = await reader.divided(messages=messages)

    assert portion["last"][2] == last


async def test_a_limit_of_bytes_ends_the_walk(log, reader, partition):
    first_two = await log.value("select sum(octet_length(body)) from skep.segment where first < 5")

    assert sizes(await reader.divided(size_bytes=first_two)) == [(4, 2, 4)]
    assert sizes(await reader.divided(size_bytes=first_two - 1)) == [(1, 1, 3)]
    assert sizes(await reader.divided(size_bytes=1)) == [(1, 1, 3)]


async def test_an_empty_span_has_no_portion(reader, partition):
    assert await reader.divided(await reader.present(), share=1) == []


async def test_portions_follow_one_another_in_the_order_of_addresses(log, reader, partition):
    portions = await reader.divided(share=1)

    rest = await reader.divided(after=portions[1]["last"])

    assert [row["last"] for row in portions] == sorted(row["last"] for row in portions)
    assert sizes(rest) == [(7, 2, 6)]


async def test_several_queues_are_divided_as_one(log, reader, partition):
    other, _ = await log.partition("other")
    await log.push(other, "k", "l")
    await log.push(partition, "m")
    both = [
        *await reader.queue_ids(),
        await log.value("select id from skep.queue where name = 'other'"),
    ]
    reader.queue_ids = answer(both)

    portions = await reader.divided(share=10)

    assert [(row["last"][1], row["messages"]) for row in portions] == [
        (partition, 10),
        (partition, 3),
    ]
    (limited,) = await reader.divided(messages=12)
    assert (limited["last"][1], limited["messages"]) == (other, 12)


def answer(value):
    async def answer():
        return value

    return answer


@pytest.fixture
def add_segments(log, reader):
    """Add a segment of one message to each of many partitions."""

    async def add_segments(offset, partitions):
        [queue_id] = await reader.queue_ids()
        await log.execute(
            f"""
            insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
            select id, {offset}, {offset}, {queue_id}, now(), '', '[]'
            from generate_series(1, {partitions}) id
            """
        )

    return add_segments


@pytest.fixture
def backlog(log, add_segments, arun):
    """10,000 segments in 500 partitions, of which statistics tell."""

    async def fill():
        await log.partition()
        for offset in range(20):
            await add_segments(offset, 500)
        await log.execute("analyze skep.segment")

    arun(fill())


@pytest.fixture
def fetched(log):
    """Return how many segments sessions have looked at."""

    async def fetched():
        await log.value("select pg_stat_force_next_flush()")
        query = "select idx_tup_fetch + seq_tup_read from pg_stat_user_tables"
        return await log.value(f"{query} where relname = 'segment'")

    return fetched


async def test_a_limited_portion_does_not_depend_on_the_backlog(reader, backlog, fetched):
    before = await fetched()
    await reader.divided(messages=10)

    assert await fetched() - before < 2_000


@pytest.mark.parametrize("limits", [{}, {"share": 10}, {"messages": 10}])
async def test_single_partitions_are_planned_without_looking_at_the_others(
    reader, backlog, fetched, limits
):
    before = await fetched()
    portions = await reader.divided(partition_id=[3, 300], **limits)

    assert await fetched() - before <= 40
    assert sum(row["messages"] for row in portions) == limits.get("messages", 40)


async def test_single_partitions_are_read_without_looking_at_the_others(log, reader, backlog):
    [queue_id] = await reader.queue_ids()

    plan = await log.rows(
        f"explain select body from skep.read_span('{{{queue_id}}}', '{{3,300}}', '1:1:',"
        f" '{await reader.present()}', null, null, null, null)"
    )

    assert any("segment__address" in line for (line,) in plan), plan


async def test_what_is_new_in_single_partitions_is_planned_without_looking_at_the_old(
    reader, backlog, fetched, add_segments
):
    seen = await reader.present()
    await add_segments(20, 5)
    before = await fetched()
    [portion] = await reader.divided(seen, partition_id=[3], messages=10)

    assert await fetched() - before <= 5
    assert portion["messages"] == 1

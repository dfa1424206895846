"""Segments are read from an offset on, up to so many bytes, in one snapshot with the ends."""

import json

import pytest

FETCH = "select * from skep.fetch_segments($1, $2, $3, $4, $5, $6)"
MUCH = 1 << 20


async def fetch(log, *entries, bytes_max=MUCH, requests=None):
    """Read `(queue, partition, offset, bytes)` and return the rows."""
    queues, partitions, offsets, sizes = (list(each) for each in zip(*entries, strict=True))
    requests = requests or [1] * len(entries)
    ceilings = [bytes_max] * max(requests)
    return await log.rows(FETCH, requests, queues, partitions, offsets, sizes, ceilings)


def shown(rows):
    """Return entry, first offset and names of each segment."""
    return [
        (
            row["entry"],
            row["first"],
            row["body"] and "".join(each["transactionId"] for each in json.loads(row["body"])),
        )
        for row in rows
    ]


@pytest.fixture
def partition(arun, log):
    """A partition with the messages ab, c and de."""

    async def begin():
        [partition] = await log.provision("hive", "a")
        for names in ("ab", "c", "de"):
            await log.push(partition, *names)
        return partition

    return arun(begin())


@pytest.mark.usefixtures("partition")
@pytest.mark.parametrize(
    ("offset", "segments"),
    [
        (1, [(1, 1, "ab"), (1, 3, "c"), (1, 4, "de")]),
        (2, [(1, 1, "ab"), (1, 3, "c"), (1, 4, "de")]),
        (3, [(1, 3, "c"), (1, 4, "de")]),
        (5, [(1, 4, "de")]),
        (6, [(1, None, None)]),
        (99, [(1, None, None)]),
    ],
)
async def test_reading_begins_with_the_segment_that_holds_the_offset(log, offset, segments):
    assert shown(await fetch(log, ("hive", "a", offset, MUCH))) == segments


@pytest.mark.usefixtures("partition")
async def test_an_entry_gets_its_first_segment_and_further_ones_while_it_has_bytes(log):
    rows = await fetch(log, ("hive", "a", 1, 1), ("hive", "a", 3, MUCH))

    assert shown(rows) == [(1, 1, "ab"), (2, 3, "c"), (2, 4, "de")]


@pytest.mark.usefixtures("partition")
async def test_a_request_that_has_spent_its_bytes_learns_where_its_other_entries_end(log):
    entry = ("hive", "a", 1, MUCH)

    rows = await fetch(log, entry, entry, entry, bytes_max=1, requests=[1, 1, 2])

    assert shown(rows) == [(1, 1, "ab"), (2, None, None), (3, 1, "ab")]
    assert {(row["tail"], row["head"]) for row in rows} == {(1, 5)}


@pytest.mark.usefixtures("partition")
async def test_a_partition_that_was_never_written_and_a_queue_that_does_not_exist(log):
    never, missing = await fetch(log, ("hive", "new", 1, MUCH), ("none", "a", 1, MUCH))

    assert (never["tail"], never["head"], never["first"]) == (1, 0, None)
    assert never["queue_id"] is not None
    assert missing["queue_id"] is None


async def test_what_was_removed_is_not_read(log, partition):
    await log.execute("delete from skep.segment where partition_id = $1 and first = 1", partition)
    await log.execute("update skep.partition set tail = 3 where id = $1", partition)

    below, above = await fetch(log, ("hive", "a", 2, MUCH), ("hive", "a", 4, 1))

    assert (below["tail"], below["first"]) == (3, None)
    assert above["first"] == 4


async def test_a_push_that_has_not_committed_is_neither_read_nor_counted(
    log, partition, arun, open_log
):
    other = await open_log()
    transaction = other.connection.transaction()
    await transaction.start()
    await other.push(partition, "f")

    before = await fetch(log, ("hive", "a", 5, MUCH))
    await transaction.commit()
    after = await fetch(log, ("hive", "a", 5, MUCH))

    assert [row["head"] for row in before] == [5]
    assert shown(after) == [(1, 4, "de"), (1, 6, "f")]

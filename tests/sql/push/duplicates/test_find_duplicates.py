from datetime import timedelta

import pytest

from tests.sql.support.log import ALWAYS, MICROSECOND, NOON, NOTHING, Guarantee, keys_of

MINUTE = timedelta(minutes=1)
WINDOW = timedelta(hours=1)


async def three_segments(log):
    """Push ab at noon, c a minute later, de a minute later; return the partition."""
    partition, _ = await log.partition()
    for names in ("ab", "c", "de"):
        await log.push(partition, *names)
        await log.advance(60)
    return partition


async def probe(log, partition, names, guarantee=NOTHING, *, now=None, resolve=False):
    return await log.row(
        "select * from skep.find_duplicates($1, $2, $3, $4, $5, $6)",
        partition,
        keys_of(names),
        guarantee.to,
        guarantee.since,
        now or log.now,
        resolve,
    )


async def places(log, partition, names, guarantee=NOTHING, **options):
    """Return where the names were found, by name."""
    row = await probe(log, partition, names, guarantee, **options)
    if row["duplicate_index"] is None:
        return {}
    found = zip(row["duplicate_index"], row["duplicate_offset"], strict=True)
    return {names[index]: offset for index, offset in found}


async def gap(log, partition, guarantee, **options):
    row = await probe(log, partition, "x", guarantee, **options)
    return row["gap_first"], row["gap_keys"], row["gap_created_at"]


async def test_without_a_guarantee_the_whole_window_is_searched(log):
    partition = await three_segments(log)

    assert await places(log, partition, "xeybzc") == {"e": 5, "b": 2, "c": 3}


async def test_other_partitions_are_not_searched(log):
    await three_segments(log)
    [other] = await log.provision("hive", "other")

    assert await places(log, other, "abcde") == {}


async def test_what_lies_above_the_guaranteed_offset_is_searched(log):
    partition = await three_segments(log)

    assert await places(log, partition, "bcd", Guarantee(2, ALWAYS)) == {"c": 3, "d": 4}


async def test_the_rest_of_a_segment_that_is_guaranteed_for_in_part_is_searched(log):
    partition = await three_segments(log)

    assert await places(log, partition, "e", Guarantee(4, ALWAYS)) == {"e": 5}


async def test_what_is_older_than_the_guaranteed_time_is_searched(log):
    partition = await three_segments(log)

    assert await places(log, partition, "bcd", Guarantee(5, NOON + MINUTE)) == {"b": 2}


async def test_what_is_guaranteed_for_is_not_searched(log):
    partition = await three_segments(log)

    assert await places(log, partition, "abcde", Guarantee(5, NOON)) == {}


@pytest.mark.parametrize("guarantee", [NOTHING, Guarantee(5, NOTHING.since)], ids=["gap", "old"])
@pytest.mark.parametrize(
    ("now", "found"),
    [
        (NOON + WINDOW - MICROSECOND, {"b": 2, "c": 3}),
        (NOON + WINDOW, {"c": 3}),
        (NOON + MINUTE + WINDOW, {}),
    ],
)
async def test_the_window_ends_sharp(log, guarantee, now, found):
    partition = await three_segments(log)

    assert await places(log, partition, "bc", guarantee, now=now) == found


async def test_a_lost_call_is_found_outside_the_window_above_the_guaranteed_offset(log):
    partition = await three_segments(log)
    later = NOON + 10 * WINDOW

    found = await places(log, partition, "bce", Guarantee(2, ALWAYS), now=later, resolve=True)

    assert found == {"c": 3, "e": 5}


async def test_a_lost_call_is_found_although_detection_is_off(log):
    partition = await three_segments(log)
    await log.configure("hive", dedup_window_s=0)

    assert await places(log, partition, "e", Guarantee(3, ALWAYS), resolve=True) == {"e": 5}


async def test_of_several_places_the_newest_is_told(log):
    partition = await three_segments(log)
    await log.advance(10 * 3600)
    await log.push(partition, "b", "f")

    assert await places(log, partition, "b", resolve=True) == {"b": 6}


async def test_keys_that_match_only_across_the_border_of_two_are_no_duplicates(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    crossing = keys_of("ab")[8:24]

    found = await log.value(
        "select duplicate_index from skep.find_duplicates($1, $2, 0, 'infinity', $3, false)",
        partition,
        crossing,
        log.now,
    )

    assert found is None


async def test_the_keys_above_the_guaranteed_offset_come_back_in_offset_order(log):
    partition = await three_segments(log)

    assert await gap(log, partition, Guarantee(2, ALWAYS)) == (3, keys_of("cde"), NOON + 2 * MINUTE)


async def test_there_is_no_gap_when_everything_is_guaranteed_for(log):
    partition = await three_segments(log)

    assert await gap(log, partition, Guarantee(5, NOON + MINUTE)) == (None, None, None)


async def test_a_gap_of_which_a_part_is_outside_the_window_is_not_sent(log):
    partition = await three_segments(log)
    now = NOON + MINUTE + WINDOW

    assert await gap(log, partition, Guarantee(2, ALWAYS), now=now) == (None, None, None)


async def test_a_gap_of_which_a_part_was_deleted_is_not_sent(log):
    partition = await three_segments(log)
    await log.execute("delete from skep.segment where first = 3")

    assert await gap(log, partition, Guarantee(2, ALWAYS)) == (None, None, None)


async def test_a_gap_that_begins_inside_a_segment_is_not_sent(log):
    partition = await three_segments(log)

    assert await gap(log, partition, Guarantee(4, ALWAYS)) == (None, None, None)


@pytest.mark.parametrize(("key_count", "is_sent"), [(65_535, True), (65_536, False)])
async def test_a_gap_of_a_mebibyte_is_too_long_to_send(log, key_count, is_sent):
    partition, _ = await log.partition()
    keys = keys_of(map(str, range(key_count)))
    query = "select * from skep.append_segments($1, $2, $3, array['[]'::bytea], $4)"
    await log.execute(query, [partition], [key_count], [keys], log.now)

    first, sent, _ = await gap(log, partition, Guarantee(0, ALWAYS))

    assert (first, sent) == ((1, keys) if is_sent else (None, None))


async def test_of_a_lost_call_each_stored_message_stands_for_one_of_those_sent(log):
    partition, _ = await log.partition()
    await log.configure("hive", dedup_window_s=0)
    await log.push(partition, "x", "y", "x")

    found = await log.row(
        "select duplicate_index, duplicate_offset"
        " from skep.find_duplicates($1, $2, 0, 'infinity', $3, true)",
        partition,
        keys_of("xxyx"),
        log.now,
    )

    places = dict(zip(found["duplicate_index"], found["duplicate_offset"], strict=True))
    assert sorted(places.values()) == [1, 2, 3]
    assert places[2] == 2


async def test_the_walk_ends_where_a_guarantee_of_the_whole_window_begins(log):
    partition, _ = await log.partition()
    for number in range(50):
        await log.push(partition, f"old {number}")
    await log.push(partition, "theirs")
    covered = Guarantee(50, log.now - WINDOW)

    async with log.connection.transaction():
        before = await segments_read(log)
        assert await places(log, partition, ["new", "theirs"], covered) == {"theirs": 51}
        # A loop of PL/pgSQL fetches its first ten rows at once.
        assert await segments_read(log) - before <= 10


async def segments_read(log):
    return await log.value(
        "select pg_stat_get_xact_tuples_fetched('skep.segment__address'::regclass)"
    )

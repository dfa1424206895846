import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.staging import Staging, names_in

DROP = "select skep.drop_staged_duplicates($1, 0, $2, $3, $4, $5, $6, skep.now())"


async def drop(staging, *attempts):
    partitions = await staging.partitions(*attempts)
    return await staging.log.value(DROP, staging.write_id, list(attempts or (1,)), *partitions)


async def staged(log):
    """Return the transaction ids left, by segment, and whether counts and keys agree."""
    rows = await log.rows(
        "select s.messages, length(b.keys) / 16 as keys,"
        " (select array_agg(e ->> 'transactionId') from"
        "  json_array_elements(convert_from(b.body, 'UTF8')::json) e) as names"
        " from skep.staged_segment s join skep.segment b"
        " on b.partition_id = -s.attempt and b.first = s.number order by s.task, s.number"
    )
    assert all(row["messages"] == row["keys"] == len(row["names"]) for row in rows)
    return [row["names"] for row in rows]


async def test_what_the_partition_holds_is_taken_out_and_the_rest_stays_in_order(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "b", "d")
    await staging.segment("a", "b", "c", "d", "e")
    await staging.segment("b", "d")

    assert await drop(staging) == 4

    assert await staged(log) == [["a", "c", "e"]]
    assert await staging.segments() == 1


async def test_of_the_same_id_twice_the_first_stays(log, staging):
    await staging.segment("a", "b", "a", task=1)
    await staging.segment("b", "c", task=0)

    assert await drop(staging) == 2

    assert await staged(log) == [["b", "c"], ["a"]]


async def test_the_same_id_in_another_partition_is_no_duplicate(log, staging):
    partition, _ = await log.partition(partition="b")
    await log.push(partition, "x")
    await staging.segment("x", partition="a")

    assert await drop(staging) == 0


async def test_ids_that_were_made_up_are_not_looked_at(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    await staging.segment("x", is_unique=True)

    assert await drop(staging) == 0


async def test_outside_the_window_there_are_no_duplicates(log, staging):
    partition, _ = await log.partition()
    await log.set_options("hive", dedup_window_s=60)
    await log.push(partition, "old")
    await log.advance(60)
    await log.push(partition, "young")
    await staging.segment("old", "young")

    assert await drop(staging) == 1
    assert await staged(log) == [["old"]]


async def test_a_queue_without_a_window_keeps_everything(log, staging):
    partition, _ = await log.partition()
    await log.set_options("hive", dedup_window_s=0)
    await log.push(partition, "x")
    await staging.segment("x", "x")

    assert await drop(staging) == 0


async def test_staging_of_other_attempts_neither_counts_nor_changes(log, staging):
    await staging.segment("x", attempt=9)
    await staging.segment("x")

    assert await drop(staging) == 0
    assert await staging.count() == 2


async def test_payloads_stay_byte_for_byte_when_neighbours_are_dropped(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    data = '{"nul": "\\u0000",  "n": 1.0e2}'
    other = f'{{"transactionId":"y","traceId":null,"producerSub":null,"data":{data}}}'
    first = '{"transactionId":"x","traceId":null,"producerSub":null,"data":1}'
    await staging.segment("x", "y", body=f"[{first},{other}]".encode())

    assert await drop(staging) == 1

    assert (
        await log.value("select body from skep.segment where partition_id < 0")
        == f"[{other}]".encode()
    )


FIND = DROP.replace("skep.now())", "skep.now(), $7)")


async def drop_found(staging, partitions, duplicates):
    """Drop by what a driver says of partitions and duplicates."""
    said = {"partitions": partitions, "duplicates": duplicates}
    named = await staging.partitions()
    return await staging.log.value(FIND, staging.write_id, [1], *named, json.dumps(said))


def checked(partition, head, **columns):
    return {"queue": "hive", "partition": "a", "id": partition, "head": head, **columns}


async def test_what_a_driver_found_is_dropped_without_looking_again(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    await staging.segment("x", "y", "z")

    # That it is wrong about y shows that nobody looks.
    found = [{"attempt": 1, "number": 1, "indexes": [1]}]
    said = checked(partition, 1, since="-infinity")
    assert await drop_found(staging, [said], found) == 1

    assert await staged(log) == [["x", "z"]]


async def test_what_was_pushed_after_a_driver_looked_is_found_in_addition(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "seen")
    await log.push(partition, "pushed since")
    await staging.segment("new", "pushed since", "seen", "pushed since", "last")

    found = [{"attempt": 1, "number": 1, "indexes": [2, 3]}]
    said = checked(partition, 1, since="-infinity", oldest=1)
    assert await drop_found(staging, [said], found) == 3

    assert await staged(log) == [["new", "last"]]


async def test_of_a_partition_that_it_does_not_know_what_a_driver_found_counts_for_nothing(
    log, staging
):
    await staging.segment("x", "y", "x")

    found = [{"attempt": 1, "number": 1, "indexes": [1]}]
    assert await drop_found(staging, [checked(7, 1, since="-infinity")], found) == 1

    assert await staged(log) == [["x", "y"]]


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(old=st.lists(st.sampled_from("abcdefgh"), unique=True), new=st.lists(NAMES, max_size=4))
def test_after_a_commit_each_id_is_there_once_in_the_order_of_its_first_row(arun, log, old, new):
    async def example():
        await log.clear()
        staging = Staging(log)
        await staging.clear()
        partition, _ = await log.partition()
        if old:
            await log.push(partition, *old)
        for names in new:
            await staging.segment(*names)
        committed = await staging.commit()
        rows = [name for names in new for name in names]
        expected = list(dict.fromkeys([*old, *rows]))
        assert await names_in(log) == expected
        assert committed.messages == len(expected) - len(old)
        assert committed.duplicates == len(rows) - committed.messages

    arun(example())

"""Pushing what is not stored yet, in one call."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import ALWAYS, Guarantee, envelope, key_of
from tests.sql.support.settling import names

QUERY = "select * from skep.push_distinct($1, $2, $3, $4, $5, $6)"


KNOWS_NOTHING_YET = Guarantee(0, ALWAYS)


async def push(log, writes, guarantee=KNOWS_NOTHING_YET):
    partitions = sorted(writes)
    sent = [
        (number, name)
        for number, partition in enumerate(partitions, 1)
        for name in writes[partition]
    ]
    return await log.row(
        QUERY,
        partitions,
        [guarantee.to] * len(partitions),
        [guarantee.since] * len(partitions),
        [number for number, _ in sent],
        [key_of(name) for _, name in sent],
        [envelope(name).encode() for _, name in sent],
    )


async def test_messages_are_stored_in_order(log):
    a, b = await log.provision("hive", "a", "b")

    pushed = await push(log, {a: "xyz", b: "q"})

    assert [pushed["push_offset"], pushed["partition_first"]] == [[1, 2, 3, 1], [1, 1]]
    assert pushed["push_is_duplicate"] == [False] * 4
    assert [await names(log, a), await names(log, b)] == [["x", "y", "z"], ["q"]]


async def test_what_is_stored_already_is_left_out_and_named(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "x", "y")

    pushed = await push(log, {a: "nyx", b: "x"})

    assert [pushed["push_offset"], pushed["partition_first"]] == [[3, 2, 1, 1], [3, 1]]
    assert pushed["push_is_duplicate"] == [False, True, True, False]
    assert await names(log, a) == ["x", "y", "n"]


async def test_nothing_is_stored_when_everything_is_a_duplicate(log):
    [a] = await log.provision("hive", "a")
    await log.push(a, "x")

    pushed = await push(log, {a: "x"})

    assert [pushed["push_offset"], pushed["partition_first"]] == [[1], [None]]
    assert pushed["push_is_duplicate"] == [True]
    assert await names(log, a) == ["x"]


async def test_the_gap_tells_what_others_pushed_even_beside_a_duplicate(log):
    [a] = await log.provision("hive", "a")
    await log.push(a, "x", "y")

    pushed = await push(log, {a: "xn"})

    assert [pushed["gap_first"], pushed["gap_keys"]] == [[1], [key_of("x") + key_of("y")]]


async def test_a_message_of_a_partition_that_is_gone_has_no_offset(log):
    pushed = await push(log, {1 << 50: "x"})

    assert [pushed["push_offset"], pushed["partition_first"]] == [[None], [None]]


names_stored = st.lists(st.sampled_from("abcdef"), unique=True)
names_pushed = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)


# Each example empties the log itself.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(stored=names_stored, pushed=names_pushed)
def test_each_name_is_stored_once_whatever_was_there(arun, log, stored, pushed):
    async def check():
        await log.clear()
        [a] = await log.provision("hive", "a")
        if stored:
            await log.push(a, *stored)
        await push(log, {a: pushed})
        assert await names(log, a) == stored + [name for name in pushed if name not in stored]

    arun(check())

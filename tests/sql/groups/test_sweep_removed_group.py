from tests.sql.support.log import Ack, Poll

SWEEP = "select * from skep.sweep_removed_group($1, $2)"
FORGET = "select skep.forget_group($1)"


async def removed(log, *partitions):
    """Remove a group that has a dead letter in each of these partitions; return its id."""
    ids = await log.provision("hive", *partitions)
    group = await log.subscribe("hive", "bees")
    await log.push_writes(dict.fromkeys(ids, ("x", "y")))
    await log.pop(group, poll := Poll(partitions=len(ids)))
    await log.ack(*(Ack(partition, 1, poll.lease_id, "dlq", group="bees") for partition in ids))
    await log.value(FORGET, group)
    return group


async def left(log, group):
    """Count the cursors and the dead letters of a group, and the removed groups."""
    counts = [
        await log.value(f"select count(*) from skep.{table} where group_id = $1", group)
        for table in ("cursor", "dead_letter", "removed_group")
    ]
    return tuple(counts)


async def test_what_a_removed_group_left_behind_goes_in_portions(log):
    group = await removed(log, *"abc")

    first = await log.row(SWEEP, group, 2)
    assert await left(log, group) == (1, 1, 1)
    last = await log.row(SWEEP, group, 2)

    assert (tuple(first), tuple(last)) == ((2, True), (1, False))
    assert await left(log, group) == (0, 0, 0)
    assert tuple(await log.row(SWEEP, group, 2)) == (0, False)


async def test_a_sweep_that_was_interrupted_is_taken_up_by_anyone_after_a_minute(log):
    group = await removed(log, *"abc")
    await log.row(SWEEP, group, 1)

    assert tuple(await log.row(SWEEP, None, 10)) == (0, False)
    await log.advance(61)
    assert tuple(await log.row(SWEEP, None, 10)) == (2, True)

    assert await left(log, group) == (0, 0, 0)
    assert tuple(await log.row(SWEEP, None, 10)) == (0, False)


async def test_a_group_that_is_being_swept_is_left_to_who_is_at_it(log, open_log):
    group = await removed(log, "a")
    await log.advance(61)
    other = await open_log()
    await other.set_clock(log.now)

    async with log.connection.transaction():
        await log.row(SWEEP, group, 10)
        assert tuple(await other.row(SWEEP, None, 10)) == (0, False)


async def test_other_groups_and_the_same_name_anew_keep_theirs(log):
    group = await removed(log, "a", "b")
    anew = await log.subscribe("hive", "bees")

    await log.row(SWEEP, group, 10)

    assert anew != group
    assert (await left(log, anew))[0] == 2


async def test_the_queue_may_be_gone_as_well(log):
    group = await removed(log, "a", "b")
    await log.value("select skep.remove_queue('hive')")
    while await log.value("select skep.sweep_removed_queue(null, 100)"):
        pass

    assert tuple(await log.row(SWEEP, group, 10)) == (0, False)
    assert await left(log, group) == (0, 0, 0)

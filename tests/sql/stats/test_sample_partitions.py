from tests.sql.support.log import Log


async def sample(log, queues, partitions):
    rows = await log.rows("select * from skep.sample_partitions($1, $2)", queues, partitions)
    return [row[0] for row in rows]


async def queue_of(log, name, partitions):
    """Create a queue with so many partitions at once and return its id."""
    queue_id = await log.value("select skep.ensure_queue($1)", name)
    await log.execute(
        """
        insert into skep.partition (queue_id, name)
        select $1, n::text from generate_series(1, $2) n
        """,
        queue_id,
        partitions,
    )
    return queue_id


async def test_a_large_queue_is_represented_by_about_as_many_as_asked_for(connect):
    log = await Log.open(connect)  # a table of its own: empty pages would be sampled as well
    queue_id = await queue_of(log, "hive", 10_000)

    chosen = await sample(log, [queue_id], 1000)

    assert len(set(chosen)) == len(chosen)
    assert 300 < len(chosen) < 3000


async def test_the_choice_is_the_same_every_time(log):
    queue_id = await queue_of(log, "hive", 5_000)

    assert await sample(log, [queue_id], 500) == await sample(log, [queue_id], 500)


async def test_a_queue_that_hardly_occurs_is_represented_by_its_first_partitions(log):
    large = await queue_of(log, "hive", 10_000)
    small = await queue_of(log, "wax", 3)

    chosen = await sample(log, [large, small], 500)

    partitions = "select count(*) from skep.partition where queue_id = $1 and id = any($2)"
    assert await log.value(partitions, small, chosen) == 3


async def test_many_small_queues_do_not_make_the_sample_large(log):
    queues = [await queue_of(log, f"hive-{number}", 50) for number in range(60)]

    chosen = await sample(log, queues, 100)

    assert len(chosen) <= 400
    with_a_partition = "select count(distinct queue_id) from skep.partition where id = any($1)"
    assert await log.value(with_a_partition, chosen) == 60


async def test_partitions_of_other_queues_are_not_chosen(log):
    wanted = await queue_of(log, "hive", 200)
    await queue_of(log, "wax", 200)

    strangers = "select count(*) from skep.partition where queue_id <> $1 and id = any($2)"
    assert await log.value(strangers, wanted, await sample(log, [wanted], 100)) == 0

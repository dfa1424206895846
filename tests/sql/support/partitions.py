"""Queues with more partitions than a test would create by pushing."""


async def many_partitions(log, count, *, group="bees", unread=2):
    """Make partitions of the queue `hive` that hold so many unread messages; return the group's id.

    Everything else goes, and tables are made afresh: the space that earlier tests left in them
    would take part in a sample.
    """
    await log.clear()
    await log.execute("truncate skep.cursor, skep.segment")
    group_id = await log.subscribe("hive", group)
    await log.execute(
        """
        insert into skep.partition (queue_id, name, head, pushed_at)
        select q.id, lpad(n::text, 6, '0'), $2::bigint, skep.now()
        from skep.queue q, generate_series(1, $1::integer) n where q.name = 'hive'
        """,
        count,
        unread,
    )
    await log.execute(
        """
        insert into skep.cursor (partition_id, group_id, queue_id, available_at)
        select p.id, $1, p.queue_id, skep.now() from skep.partition p
        """,
        group_id,
    )
    if unread:
        await log.execute(
            """
            insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
            select p.id, 1, p.head, p.queue_id, skep.now(), '', '[]' from skep.partition p
            """
        )
    return group_id

-- wake_held: look again at held-back partitions after the queue's delay was shortened.
-- Returns how many partitions became ready.
-- Locks   waiting skep.cursor rows for no key update, in (partition_id, group_id) order.
-- Why     A held-back partition is scheduled for the moment its first message may be read; with a
--         shorter delay that is too late. Back-offs are left alone; a partition made ready too
--         early is put off again by the next claim.
create function skep.wake_held(p_queue_id integer) returns bigint
language sql as $$
  with held as (
    select c.partition_id, c.group_id
    from skep.consumer_group g
    cross join lateral (
      select c.partition_id, c.group_id from skep.cursor c
      where c.group_id = g.id and c.available_at > skep.now() and c.leased is null
        and not exists (select from unnest(c.failed_offset) f(at) where f.at > c.acked)
      offset 0
    ) c
    where g.queue_id = p_queue_id
  ),
  locked as (
    select c.ctid as place
    from skep.cursor c
    where (c.partition_id, c.group_id) in (select h.partition_id, h.group_id from held h)
    order by c.partition_id, c.group_id
    for no key update
  ),
  woken as (
    update skep.cursor c set available_at = skep.now()
    from locked l where c.ctid = l.place and c.leased is null
    returning 1
  )
  select count(*) from woken;
$$;

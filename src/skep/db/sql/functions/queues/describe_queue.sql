-- describe_queue: one queue with its options and groups.
-- Returns one row, none if there is no such queue: default_partition_id (null if it has no
--         partition Default), and its groups as parallel arrays by name.
-- Why     One call for the whole page of a queue.
create function skep.describe_queue(p_name text)
returns table (
  queue jsonb, default_partition_id bigint, partitions bigint, group_name text[], group_mode text[],
  group_from timestamptz[], group_is_paused boolean[], group_created_at timestamptz[])
language sql stable as $$
  select to_jsonb(q),
         (select p.id from skep.partition p where p.queue_id = q.id and p.name = 'Default'),
         (select count(*) from skep.partition p where p.queue_id = q.id),
         g.name, g.mode, g.start, g.is_paused, g.created_at
  from skep.queue q
  cross join lateral (
    select array_agg(g.name order by g.name) as name,
           array_agg(g.subscription_mode order by g.name) as mode,
           array_agg(g.subscribed_from order by g.name) as start,
           array_agg(g.is_paused order by g.name) as is_paused,
           array_agg(g.created_at order by g.name) as created_at
    from skep.consumer_group g
    where g.queue_id = q.id
  ) g
  where q.name = p_name
$$;

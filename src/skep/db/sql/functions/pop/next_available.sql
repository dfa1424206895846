-- next_available: how long until groups, or single partitions of groups, can be served.
-- Takes   partition 0 means all partitions.
-- Returns per question with an answer: item (1-based) and seconds until the earliest available_at:
--         0 or less if ready now; also 0 if the group or partition does not exist, so that a poll
--         finds out. No row if everything asked about is idle or paused.
-- Locks   none.
-- Why     One question for all parked polls of a broker, three index look-ups each; an idle broker
--         with a thousand parked polls asks about once a second. The limit of 1 keeps the planner
--         from using the index of ready partitions for a single partition.
create function skep.next_available(p_group_id integer[], p_partition_id bigint[])
returns table (item integer, seconds double precision)
language sql stable as $$
  select q.ord::integer,
         coalesce(extract(epoch from c.available_at - skep.now()), 0)::double precision
  from unnest(p_group_id, p_partition_id) with ordinality q(group_id, partition_id, ord)
  left join lateral (
    select g.queue_id, g.is_paused from skep.consumer_group g where g.id = q.group_id offset 0
  ) g on true
  left join lateral (
    select w.is_paused from skep.queue w where w.id = g.queue_id offset 0
  ) w on true
  left join lateral (
    (select c.available_at, true as is_there from skep.cursor c
     where q.partition_id = 0 and c.group_id = q.group_id and c.available_at is not null
     order by c.available_at limit 1)
    union all
    (select c.available_at, true from skep.cursor c
     where q.partition_id <> 0 and c.partition_id = q.partition_id and c.group_id = q.group_id
     limit 1)
  ) c on true
  where g.queue_id is null
     or (not g.is_paused and not w.is_paused
         and (c.available_at is not null or (q.partition_id <> 0 and c.is_there is null)));
$$;

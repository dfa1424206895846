/*
next_available: how long until each of many groups, or single partitions of groups, can be served.

Takes   p_group_id, p_partition_id: parallel arrays; 0 as partition asks about all partitions.
Returns one row per question with an answer: item (1-based) and the seconds until the earliest
        available_at: 0 or less = ready now, more = a lease ends or a delay is over then. 0 as well
        when the group or the partition does not exist (any more): whoever polls then learns it. No row
        when everything asked about is idle, or the group or its queue is paused.
Locks   none.
Why     One question for all parked polls of a broker, three index look-ups each: an idle broker
        with a thousand parked polls asks it about once a second. The limit of 1 keeps the condition on
        available_at out of the look-up of a single partition, or the index of ready partitions could serve.
*/
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

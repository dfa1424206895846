-- offsets_at: the first offsets of partitions that were stored at or after some moments.
-- Takes   per entry, in parallel arrays: p_queue, p_partition, p_moment.
-- Returns per entry: queue_id, null if the queue does not exist; head and tail as fetch_segments;
--         at and created_at of the message, null if all are older. A moment before the log began
--         means its first message.
-- Why     created_at never decreases along a partition, so offset_before searches it in a few
--         steps.
create function skep.offsets_at(
  p_queue text[], p_partition text[], p_moment timestamptz[])
returns table (
  entry bigint, queue_id integer, head bigint, tail bigint, at bigint, created_at timestamptz)
language sql stable as $$
  select e.item, q.id, coalesce(p.head, 0), coalesce(p.tail, 1), f.at, s.created_at
  from unnest(p_queue, p_partition, p_moment) with ordinality e(queue, partition, moment, item)
  left join lateral (
    select q.id from skep.queue q where q.name = e.queue offset 0
  ) q on true
  left join lateral (
    select p.id, p.head, p.tail from skep.partition p
    where p.queue_id = q.id and p.name = e.partition offset 0
  ) p on true
  left join lateral (
    select o.before + 1 as at
    from (select skep.offset_before(p.id, e.moment) as before where p.head >= p.tail) o
    where o.before < p.head
  ) f on true
  left join lateral (
    select s.created_at from skep.segment s
    where s.partition_id = p.id and s.first <= f.at order by s.first desc limit 1
  ) s on true
  order by e.item;
$$;

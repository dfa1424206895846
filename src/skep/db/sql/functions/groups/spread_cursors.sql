-- spread_cursors: sample cursors of groups evenly over the partitions of their queues.
-- Takes   p_partitions: roughly how many partitions per queue.
-- Returns as sample_cursors.
-- Why     Partitions at equal distances in name order represent every queue, even one that blocks
--         of the table would miss. The price is a walk through the names.
create function skep.spread_cursors(p_group_id integer[], p_partitions integer)
returns table (
  group_id integer, partition_id bigint, acked bigint, done int8multirange,
  available_at timestamptz, weight double precision)
language sql stable as $$
  select c.group_id, l.id, c.acked, c.done, c.available_at, l.weight
  from (
    select g.queue_id, array_agg(g.id) as groups
    from skep.consumer_group g where g.id = any(p_group_id) group by g.queue_id
  ) q
  cross join lateral (
    select n.id, n.partitions::double precision / count(*) over () as weight
    from (
      select p.id, row_number() over (order by p.name) - 1 as place, count(*) over () as partitions
      from skep.partition p where p.queue_id = q.queue_id
    ) n
    where n.place % greatest(n.partitions / p_partitions, 1) = 0
  ) l
  cross join lateral (
    select c.group_id, c.acked, c.done, c.available_at from skep.cursor c
    where c.partition_id = l.id and c.group_id = any(q.groups) offset 0
  ) c;
$$;

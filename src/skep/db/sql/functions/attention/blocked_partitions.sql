-- blocked_partitions: partitions whose first message fails or is lost again and again.
-- Takes   p_look_max: active partitions to look at in each group. p_deliveries: how often the first
--         message was delivered at least.
-- Returns per group with such partitions: how many were found, and of the one whose message was
--         delivered most often its name and the deliveries.
-- Why     One message stops all behind it, which neither a lag nor a rate shows. A partition that
--         backs off or is leased is at the far end of the index of active ones.
create function skep.blocked_partitions(
  p_group_id integer[], p_look_max integer, p_deliveries integer)
returns table (group_id integer, partitions bigint, partition_name text, deliveries integer)
language sql stable as $$
  select i.id, b.partitions, p.name, b.deliveries
  from unnest(p_group_id) i(id)
  cross join lateral (
    select count(*) as partitions, max(c.deliveries) as deliveries,
           (array_agg(c.partition_id order by c.deliveries desc, c.partition_id))[1]
             as partition_id
    from (
      select k.partition_id, k.deliveries from skep.cursor k
      where k.group_id = i.id and k.available_at is not null
      order by k.available_at desc limit p_look_max
    ) c
    where c.deliveries >= p_deliveries
  ) b
  join skep.partition p on p.id = b.partition_id
  where b.partitions > 0;
$$;

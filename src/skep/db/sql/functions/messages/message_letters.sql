-- message_letters: the dead letters a message became, and the one it came from.
-- Takes   p_searched: how many of the newest redrives to search.
-- Returns oldest failure first: group_name (null if the group is gone); redriven_at and the address
--         of the new message, null while it is a dead letter. is_origin: this message is the
--         redriven one, and the address is that of its original.
-- Why     Redrives are indexed by time only; an index by address would cost each of them.
create function skep.message_letters(
  p_partition_id bigint, p_offset bigint, p_searched integer)
returns table (
  group_name text, error text, failures integer, failed_at timestamptz, redriven_at timestamptz,
  other_partition_id bigint, other_offset bigint, is_origin boolean)
language sql stable as $$
  with redriven as materialized (
    select r.* from (
      select * from skep.redriven_letter order by redriven_at desc limit p_searched
    ) r
    where (r.partition_id = p_partition_id and r.message_offset = p_offset)
       or (r.to_partition_id = p_partition_id and r.to_offset = p_offset)
  ),
  letter as (
    select d.group_id, d.error, d.failures, d.failed_at, null::timestamptz as redriven_at,
           null::bigint as partition_id, null::bigint as message_offset, false as is_origin
    from skep.dead_letter d
    where d.partition_id = p_partition_id and d.message_offset = p_offset
    union all
    select r.group_id, r.error, r.failures, r.failed_at, r.redriven_at,
           case when o.is_origin then r.partition_id else r.to_partition_id end,
           case when o.is_origin then r.message_offset else r.to_offset end, o.is_origin
    from redriven r
    cross join lateral (
      select not (r.partition_id = p_partition_id and r.message_offset = p_offset) as is_origin
    ) o
  )
  select g.name, l.error, l.failures, l.failed_at, l.redriven_at, l.partition_id,
         l.message_offset, l.is_origin
  from letter l left join skep.consumer_group g on g.id = l.group_id
  order by l.failed_at, g.name;
$$;

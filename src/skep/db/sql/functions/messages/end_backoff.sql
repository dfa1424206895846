-- end_backoff: deliver a failed message again at once.
-- Takes   p_group: null for all groups.
-- Returns the groups that were backing off because of the message.
-- Locks   skep.cursor rows for no key update, in group order.
-- Why     After a failure the whole partition backs off, to keep its order. A leased partition is
--         left alone: its message is being delivered.
create function skep.end_backoff(p_partition_id bigint, p_offset bigint, p_group text)
returns table (queue_id integer, group_name text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  with waiting as (
    select c.group_id, g.name from skep.cursor c join skep.consumer_group g on g.id = c.group_id
    where c.partition_id = p_partition_id and (p_group is null or g.name = p_group)
      and c.leased is null and c.available_at > v_now and c.acked < p_offset
      and p_offset = any(c.failed_offset)
    order by c.group_id for no key update of c
  )
  update skep.cursor c set available_at = v_now
  from waiting w
  where c.partition_id = p_partition_id and c.group_id = w.group_id
  returning c.queue_id, w.name;
end $$;

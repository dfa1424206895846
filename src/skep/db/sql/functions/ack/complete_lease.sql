-- complete_lease: apply the only ack of a call, if it is a plain one.
-- Takes   p_group: the name. p_is_deferred: as ack_messages.
-- Returns one row, or none if the ack is left to ack_messages: it is not plain (see complete_leases),
--         acks of the queue are individual, or deferred operations wait.
-- Locks   the skep.partition row for share, unless it is locked; then the skep.cursor row for no key
--         update, waiting.
-- Model   Delivery!Ack
-- Why     Where consumers keep up, nearly every call carries one ack, and starting statements is
--         most of what it costs: this is one where ack_messages needs five. The share lock comes
--         before that of the cursor, as in every order of locks, and is only taken if nothing lies
--         beyond; so the partition may become idle (see take_partitions). The update looks again at a
--         cursor that changed while it waited.
create function skep.complete_lease(
  p_partition_id bigint, p_group text, p_lease_id uuid, p_offset bigint, p_is_deferred boolean)
returns table (
  queue_id integer, queue_name text, partition_name text, lease_released boolean,
  has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  update skep.cursor c
  set acked = p_offset,
      leased = case when p_offset < c.leased then c.leased end,
      available_at = case when p_offset < c.leased then c.available_at
                          when i.is_idle then null else v_now end,
      leased_from = case when p_offset < c.leased then c.leased_from end,
      unanswered = case when p_offset < c.leased then 1 else 0 end
  from (
    select p.queue_id, p.name as partition_name, q.name as queue_name, g.id as group_id, r.is_idle
    from skep.partition p
    cross join lateral (
      select q.name from skep.queue q
      where q.id = p.queue_id and q.ack_mode = 'cumulative' offset 0
    ) q
    cross join lateral (
      select g.id from skep.consumer_group g
      where g.queue_id = p.queue_id and g.name = p_group offset 0
    ) g
    left join lateral (
      select true as is_idle from skep.partition r
      where r.id = p.id and r.head <= p_offset
      for share skip locked
    ) r on true
    where p.id = p_partition_id and (p.deferred_acks = 0 or p_is_deferred)
    offset 0
  ) i
  where c.partition_id = p_partition_id and c.group_id = i.group_id
    and c.lease_id = p_lease_id and c.available_at > v_now
    and p_offset > c.acked and p_offset <= c.leased
    and c.failed_offset is null and c.done is null
  returning i.queue_id, i.queue_name, i.partition_name, c.leased is null,
            c.leased is null and c.available_at is not null;
end $$;

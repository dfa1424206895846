-- retry_operation: let a failed operation wait again, as the last of its partition.
-- Returns outcome: waiting, unknown (no such operation), unfit (has not failed) or gone (no
--         partition).
-- Locks   its skep.partition row for no key update; the skep.operation row for update; then totals.
-- Why     Last, because the operations behind its old place were carried out or are next.
create function skep.retry_operation(p_id uuid) returns table (outcome text, queue_position integer)
language plpgsql as $$
#variable_conflict use_column
declare
  v_operation skep.operation;
begin
  perform 1 from skep.partition p
  where p.id = (select o.partition_id from skep.operation o where o.id = p_id)
  for no key update;
  select * into v_operation from skep.operation o where o.id = p_id for update;
  if not found then
    outcome := 'unknown';
  elsif v_operation.status <> 'failed' then
    outcome := 'unfit';
  else
    update skep.partition p
    set deferred_pushes = p.deferred_pushes + (v_operation.type = 'push')::integer,
        deferred_acks = p.deferred_acks + (v_operation.type <> 'push')::integer
    from skep.queue q
    where p.id = v_operation.partition_id and q.id = p.queue_id
    returning case v_operation.type when 'push' then p.deferred_pushes else p.deferred_acks end
    into queue_position;
    outcome := case when found then 'waiting' else 'gone' end;
  end if;
  if outcome = 'waiting' then
    update skep.operation o
    set status = 'waiting', retries = 0, number = default, finished_at = null,
        available_at = skep.now(), is_next = retry_operation.queue_position = 1
    where o.id = p_id;
    perform skep.count_operations(
      array[v_operation.partition_id, v_operation.partition_id],
      array[v_operation.type, v_operation.type], array['failed', 'waiting'],
      array[-1, 1]::bigint[], array[-v_operation.bytes, v_operation.bytes]::bigint[]);
  end if;
  return next;
end $$;

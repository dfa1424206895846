-- purge_operations: delete operations that ended long ago.
-- Takes   p_keep_s: for completed and cancelled ones. p_limit: rows per status.
-- Returns how many were deleted.
-- Locks   the deleted skep.operation rows, skipping locked ones; then totals.
-- Why     Status by status, oldest first, so that a run costs what it deletes.
create function skep.purge_operations(
  p_keep_s double precision, p_keep_failed_s double precision, p_limit integer) returns integer
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_partition_id bigint[];
  v_type text[];
  v_status text[];
  v_bytes bigint[];
begin
  with old as (
    select k.id
    from (
      values ('completed', p_keep_s), ('cancelled', p_keep_s), ('failed', p_keep_failed_s)
    ) i(status, keep_s)
    cross join lateral (
      select o.id from skep.operation o
      where o.status = i.status and o.finished_at < v_now - make_interval(secs => i.keep_s)
      order by o.finished_at, o.number limit p_limit
      for update skip locked
    ) k
  ),
  gone as (
    delete from skep.operation o using old where o.id = any(array[old.id])
    returning o.partition_id, o.type, o.status, o.bytes
  )
  select array_agg(g.partition_id), array_agg(g.type), array_agg(g.status),
         array_agg(-g.bytes::bigint)
  into v_partition_id, v_type, v_status, v_bytes
  from gone g;
  if v_type is null then
    return 0;
  end if;
  perform skep.count_operations(
    v_partition_id, v_type, v_status, array_fill(-1::bigint, array[cardinality(v_type)]), v_bytes);
  return cardinality(v_type);
end $$;

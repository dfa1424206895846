-- append_segments: allocate offsets and store segments. The second half of a push.
-- Takes   as push_segments.
-- Returns per partition as push_segments, with first and created_at.
-- Locks   idle skep.cursor rows in (partition_id, group_id) order; the caller holds the partitions.
-- Model   Push!Allocate
-- Why     One statement for the guaranteed and the probed path. Keys and bodies travel through the
--         update's returning list: joining them again would be quadratic.
create function skep.append_segments(
  p_partition_id bigint[], p_count integer[], p_keys bytea[], p_body bytea[], p_now timestamptz)
returns table (
  partition_id bigint, first bigint, created_at timestamptz,
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  with allocated as (
    update skep.partition p
    set head = p.head + i.count, pushed_at = greatest(p.pushed_at, p_now)
    from unnest(p_partition_id, p_count, p_keys, p_body) i(id, count, keys, body)
    where p.id = any(array[i.id])  -- an array leaves one way to join, as push_segments explains
    returning p.id, p.queue_id, p.head - i.count + 1 as first, p.head as last, p.pushed_at,
              i.keys, i.body
  ),
  stored as (
    insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
    select a.id, a.first, a.last, a.queue_id, a.pushed_at, a.keys, a.body from allocated a
  )
  select a.id, a.first, a.pushed_at,
         null::integer[], null::bigint[], null::bigint, null::bytea, null::timestamptz
  from allocated a;

  perform skep.wake_idle(p_partition_id, p_now);
end $$;

-- append_segments: allocate offsets and store segments. The second half of a push.
-- Takes   as push_segments; p_only: the partitions to store into, null for all.
-- Returns per partition as push_segments, with first and created_at.
-- Locks   idle skep.cursor rows in (partition_id, group_id) order; the caller holds the partitions.
-- Model   Push!Allocate
-- Why     One statement for the guaranteed and the probed path. Positions travel through the
--         update's returning list, and with them keys and bodies are found: joining them again
--         would be quadratic, and carrying them would copy them.
create function skep.append_segments(
  p_partition_id bigint[], p_count integer[], p_keys bytea[], p_body bytea[], p_now timestamptz,
  p_row_to integer[] default null, p_row_end integer[] default null, p_only bigint[] default null)
returns table (
  partition_id bigint, first bigint, created_at timestamptz,
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  -- For all partitions of the call: asking for each would cost more than it saves a pop.
  v_is_wide constant boolean := (
    select bool_or(octet_length(p_body[n]) > 8192) from generate_series(1, cardinality(p_body)) n);
begin
  return query
  with allocated as (
    update skep.partition p
    set head = p.head + i.count, pushed_at = greatest(p.pushed_at, p_now),
        wide_to = case when v_is_wide then p.head + i.count else least(p.wide_to, p.head) end
    from unnest(p_partition_id, p_count) with ordinality i(id, count, place)
    where p.id = any(array[i.id])  -- an array leaves one way to join, as push_segments explains
      and (p_only is null or i.id = any(p_only))
    returning p.id, p.queue_id, p.head - i.count as base, i.count, p.pushed_at,
              i.place::integer as place
  ),
  stored as (
    insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
    select a.id, a.base + r.low, a.base + r.high, a.queue_id, a.pushed_at,
           substr(p_keys[a.place], r.low * 16 - 15, (r.high - r.low + 1) * 16), p_body[r.number]
    from allocated a cross join lateral skep.row_spans(a.place, a.count, p_row_to, p_row_end) r
  )
  select a.id, a.base + 1, a.pushed_at,
         null::integer[], null::bigint[], null::bigint, null::bytea, null::timestamptz
  from allocated a;

  perform skep.wake_idle(coalesce(p_only, p_partition_id), p_now);
end $$;

-- push_doubtful: the rare half of a push: probe partitions that the broker's guarantee does not
-- cover, and append what has no duplicates.
-- Takes   as push_segments; p_doubtful: the partitions to probe; p_only: those to
--         store into, null for all.
-- Returns as push_segments.
-- Locks   as push_segments; the caller holds the partitions.
-- Why     Probing costs 0.3 to 0.4 us of CPU per stored key, so it must stay out of the common
--         path. It runs once for what other brokers wrote, and the keys go back for the next push.
create function skep.push_doubtful(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[],
  p_guaranteed_since timestamptz[], p_keys bytea[], p_body bytea[], p_resolve boolean,
  p_doubtful bigint[], p_now timestamptz, p_row_to integer[] default null,
  p_row_end integer[] default null, p_only bigint[] default null)
returns table (
  partition_id bigint, first bigint, created_at timestamptz,
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql
set enable_hashjoin = on
as $$
#variable_conflict use_column
begin
  return query
  with probed as materialized (
    select i.id, f.*
    from unnest(p_partition_id, p_guaranteed_to, p_guaranteed_since, p_keys)
           i(id, guaranteed_to, guaranteed_since, keys)
    left join lateral (
      select * from skep.find_duplicates(
        i.id, i.keys, i.guaranteed_to, i.guaranteed_since, p_now, p_resolve)
      where i.id = any(p_doubtful)
      limit 1  -- keeps this subquery apart; as a join condition it would be checked after probing
    ) f on true
    where p_only is null or i.id = any(p_only)
  ),
  appended as materialized (
    select a.partition_id, a.first, a.created_at
    from (
      select array_agg(p.id) as ids from probed p where p.duplicate_index is null
    ) c
    cross join lateral skep.append_segments(
      p_partition_id, p_count, p_keys, p_body, p_now, p_row_to, p_row_end, c.ids) a
    where c.ids is not null
  )
  select p.id, a.first, a.created_at, p.duplicate_index, p.duplicate_offset,
         p.gap_first, p.gap_keys, p.gap_created_at
  from probed p
  left join appended a on a.partition_id = p.id
  where a.first is not null or p.duplicate_index is not null;
end $$;

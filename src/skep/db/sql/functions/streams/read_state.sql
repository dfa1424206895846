-- read_state: state rows of one shard.
-- Takes   all conditions apply: p_keys (empty: any), p_prefix (of the key, literal; null: any),
--         p_ripe_at (window_end at or before; null: any).
-- Returns by key.
-- Locks   skep.stream_shard for no key update, if windows were flushed since the shard was last
--         read whole, or ripe rows are read; then ripe rows not offered in this version.
-- Why     A prefix is compared, not matched: keys are full of underscores and percent signs. Keys
--         are in byte order, so the walk begins at the prefix. Reading leaves two marks that tell a
--         cycle whether its client computed from outdated state, although clients do not say what
--         they read: reading the whole shard precedes processing messages and knows the closed
--         windows; reading ripe rows precedes flushing this version of them.
create function skep.read_state(
  p_query_id uuid, p_partition_id bigint, p_keys text[], p_prefix text, p_ripe_at double precision)
returns table (
  key text, value json, version bigint, offered_version bigint, updated_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
begin
  if cardinality(p_keys) = 0 and p_prefix is null and p_ripe_at is null then
    update skep.stream_shard s set closed_keys = null
    where s.query_id = p_query_id and s.partition_id = p_partition_id
      and s.closed_keys is not null;
  elsif p_ripe_at is not null then
    perform 1 from skep.stream_shard s
    where s.query_id = p_query_id and s.partition_id = p_partition_id for no key update;
    update skep.stream_state s set offered_version = s.version
    where s.query_id = p_query_id and s.partition_id = p_partition_id
      and s.window_end <= p_ripe_at and s.offered_version is distinct from s.version;
  end if;
  return query
  select s.key, s.value, s.version, s.offered_version, s.updated_at
  from skep.stream_state s
  where s.query_id = p_query_id and s.partition_id = p_partition_id
    and s.key >= coalesce(p_prefix, '') and starts_with(s.key, coalesce(p_prefix, ''))
    and (cardinality(p_keys) = 0 or s.key = any(p_keys))
    and (p_ripe_at is null or s.window_end <= p_ripe_at)
  order by s.key;
end $$;

/*
read_state: the state rows of one shard.

Takes   p_query_id, p_partition_id: the shard. All conditions must hold: p_keys (empty: any key),
        p_prefix (of the key, taken literally; null: any), p_ripe_at (window_end at or before it;
        null: any).
Returns key, value, version, updated_at, by key.
Locks   none.
Why     A prefix is compared and not matched as a pattern: keys are full of underscores and percent
        signs. Keys are in byte order, so the walk begins at the prefix.
*/
create function skep.read_state(
  p_query_id uuid, p_partition_id bigint, p_keys text[], p_prefix text, p_ripe_at double precision)
returns table (key text, value json, version bigint, updated_at timestamptz)
language sql stable as $$
  select s.key, s.value, s.version, s.updated_at
  from skep.stream_state s
  where s.query_id = p_query_id and s.partition_id = p_partition_id
    and s.key >= coalesce(p_prefix, '') and starts_with(s.key, coalesce(p_prefix, ''))
    and (cardinality(p_keys) = 0 or s.key = any(p_keys))
    and (p_ripe_at is null or s.window_end <= p_ripe_at)
  order by s.key;
$$;

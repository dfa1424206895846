-- list_queries: queries of streams and the size of their state.
-- Takes   p_name: null for all.
-- Returns by name; total is that of all pages.
-- Why     Sizes are kept with each shard, so no state rows are read.
create function skep.list_queries(p_name text, p_limit integer, p_offset integer)
returns table (
  id uuid, name text, source_queue text, sink_queue text, config_hash text,
  created_at timestamptz, updated_at timestamptz,
  shard_count bigint, row_count bigint, byte_count bigint, total bigint)
language sql stable as $$
  select q.id, q.name, q.source_queue, q.sink_queue, q.config_hash, q.created_at, q.updated_at,
         s.shard_count, s.row_count, s.byte_count, q.total
  from (
    select q.*, count(*) over () as total from skep.stream_query q
    where p_name is null or q.name = p_name
    order by q.name limit p_limit offset p_offset
  ) q
  cross join lateral (
    select count(*) as shard_count, coalesce(sum(s.row_count), 0)::bigint as row_count,
           coalesce(sum(s.byte_count), 0)::bigint as byte_count
    from skep.stream_shard s where s.query_id = q.id
  ) s
  order by q.name;
$$;

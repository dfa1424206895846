-- read_keys: the keys of partitions' duplicate windows, for Spark's sink.
-- Takes   p_segments_max: segments per partition.
-- Returns per partition one row without a segment: head and window_start; then its newest segments
--         inside the window, newest first: first, created_at, keys.
-- Locks   none.
-- Why     The sink compares what it staged with them on the executors, before its commit. Brokers
--         read windows in steps (read_window); those of the release before still call this.
create function skep.read_keys(p_partition_id bigint[], p_segments_max integer)
returns table (
  partition_id bigint, head bigint, window_start timestamptz, first bigint,
  created_at timestamptz, keys bytea)
language plpgsql stable as $$
#variable_conflict use_column
begin
  for partition_id, head, window_start in
    select p.id, p.head, skep.now() - make_interval(secs => q.dedup_window_s)
    from unnest(p_partition_id) i(id)
    cross join lateral (
      select p.id, p.head, p.queue_id from skep.partition p where p.id = i.id offset 0
    ) p
    cross join lateral (
      select q.dedup_window_s from skep.queue q where q.id = p.queue_id offset 0
    ) q
  loop
    first := null; created_at := null; keys := null;
    return next;
    for first, created_at, keys in
      select s.first, s.created_at, s.keys from skep.segment s
      where s.partition_id = read_keys.partition_id order by s.first desc limit p_segments_max
    loop
      exit when created_at <= window_start;
      return next;
    end loop;
  end loop;
end $$;

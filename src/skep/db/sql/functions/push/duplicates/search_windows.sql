-- search_windows: find keys of a push in what the broker's cache does not guarantee, before the push.
-- Takes   p_keys: the new keys of each partition. The rest as push_segments.
-- Returns per partition that exists: duplicate_index and duplicate_offset as find_duplicates, and
--         window_start: keys without a duplicate occur nowhere up to guaranteed_to in segments
--         created at or after it.
-- Locks   none: what lies up to guaranteed_to changes no more.
-- Why     A broker that has no memory left for the window searches it with every push. Under the
--         partition's lock all producers would wait for that.
create function skep.search_windows(
  p_partition_id bigint[], p_keys bytea[], p_guaranteed_to bigint[],
  p_guaranteed_since timestamptz[])
returns table (
  partition_id bigint, window_start timestamptz, duplicate_index integer[],
  duplicate_offset bigint[])
language sql stable as $$
  select i.id, n.now - make_interval(secs => q.dedup_window_s), f.duplicate_index,
         f.duplicate_offset
  from (select skep.now() as now) n
  cross join unnest(p_partition_id, p_keys, p_guaranteed_to, p_guaranteed_since)
    i(id, keys, guaranteed_to, guaranteed_since)
  cross join lateral (select p.queue_id from skep.partition p where p.id = i.id offset 0) p
  cross join lateral (
    select q.dedup_window_s from skep.queue q where q.id = p.queue_id offset 0
  ) q
  cross join lateral skep.find_duplicates(
    i.id, i.keys, i.guaranteed_to, i.guaranteed_since, n.now, false) f;
$$;

-- read_window: a step back through partitions' duplicate windows, to fill a broker's cache.
-- Takes   p_above, p_below: the offsets in between are wanted; a p_below of null is all up to the
--         head. p_keys_max: about how many keys of each partition; those of one segment at least.
-- Returns per partition that exists: head and window_start as they are now. The newest segments in
--         between that lie inside the window, in the order of their offsets: firsts, counts, their
--         joined keys, and the latest created_at. since: they are all that was created from then
--         on. is_whole: they are all there are; if not, the next step goes below below.
-- Locks   none.
-- Why     The cache is filled before the push, without the partition's lock, and in steps, so that
--         neither a call nor a broker is busy for long. Offsets are dense, so a range of offsets
--         bounds the keys. Up to a minute more than the window is read: brokers' clocks may be behind.
create function skep.read_window(
  p_partition_id bigint[], p_above bigint[], p_below bigint[], p_keys_max integer)
returns table (
  partition_id bigint, head bigint, window_start timestamptz, firsts bigint[], counts integer[],
  keys bytea, newest timestamptz, since timestamptz, below bigint, is_whole boolean)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_above bigint;
  v_below bigint;
  v_start timestamptz;
  v_oldest record;
begin
  for partition_id, head, window_start, v_start, v_above, v_below in
    select p.id, p.head, skep.now() - make_interval(secs => q.dedup_window_s),
           skep.now() - make_interval(secs => q.dedup_window_s + least(q.dedup_window_s, 60)),
           i.above,
           coalesce(i.below, p.head + 1)
    from unnest(p_partition_id, p_above, p_below) i(id, above, below)
    cross join lateral (
      select p.id, p.head, p.queue_id from skep.partition p where p.id = i.id offset 0
    ) p
    cross join lateral (
      select q.dedup_window_s from skep.queue q where q.id = p.queue_id offset 0
    ) q
  loop
    -- The oldest segment of the step: the one below the newest, if that has more keys than wanted.
    select s.first, s.created_at into v_oldest
    from (
      select s.first, s.created_at from skep.segment s
      where s.partition_id = read_window.partition_id and s.first < v_below and s.first > v_above
        and s.first >= least(v_below - p_keys_max, (
          select n.first from skep.segment n
          where n.partition_id = read_window.partition_id and n.first < v_below
          order by n.first desc limit 1))
      order by s.first limit 1
    ) s;

    select array_agg(s.first), array_agg(length(s.keys) / 16), string_agg(s.keys, ''),
           max(s.created_at)
    into firsts, counts, keys, newest
    from (
      select s.first, s.keys, s.created_at from skep.segment s
      where s.partition_id = read_window.partition_id and s.first < v_below
        and s.first >= v_oldest.first and s.created_at > v_start
      order by s.first offset 0
    ) s;

    below := v_oldest.first;
    is_whole := v_oldest.first is null or v_oldest.created_at <= v_start or not exists (
      select from (
        select s.created_at from skep.segment s
        where s.partition_id = read_window.partition_id and s.first < v_oldest.first
          and s.first > v_above
        order by s.first desc limit 1
      ) s
      where s.created_at > v_start
    );
    -- Segments that were not read may have the same time as the oldest that was.
    since := case when is_whole then v_start else v_oldest.created_at + interval '1 microsecond' end;
    return next;
  end loop;
end $$;

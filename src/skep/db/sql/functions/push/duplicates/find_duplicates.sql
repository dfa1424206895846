-- find_duplicates: decide which keys of a push are duplicates, if the cache cannot prove it.
-- Takes   p_keys: the new keys. The rest as push_segments.
-- Returns one row. duplicate_index, duplicate_offset: which new keys are stored, and where (the
--         newest place); null if none. No stored message stands for two new keys. gap_*: the keys
--         above guaranteed_to in offset order, if they are few enough to send.
-- Locks   none.
-- Model   Push!Searched
-- Why     Here is decided what a broker could not know. It only knows repeats within one call, and
--         those of keys its cache remembers, which confirm_duplicates looks up. push_doubtful calls
--         it under the partition's lock, so nothing can be added meanwhile; search_windows and
--         schedule_messages before it, for what lies below an offset. The walk goes backwards and stops at the start of the window, or where the
--         guarantee begins if it reaches back to it: created_at never decreases along a partition,
--         which may keep far more than its window.
create function skep.find_duplicates(
  p_partition_id bigint, p_keys bytea, p_guaranteed_to bigint, p_guaranteed_since timestamptz,
  p_now timestamptz, p_resolve boolean)
returns table (
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_window_start timestamptz;
  v_segments cursor for
    select s.first, s.last, s.created_at, s.keys from skep.segment s
    where s.partition_id = p_partition_id order by s.first desc;
  v_segment record;
  v_is_over boolean;
  v_first bigint[] := '{}';               -- segments to be compared with the new keys ...
  v_keys bytea[] := '{}';
  v_bytes bigint := 0;                    -- ... and the size of their keys
  v_hit record;
  v_gap_keys bytea[] := '{}';
  v_gap_bytes bigint := 0;
  v_bytes_max constant integer := 1048576;
begin
  -- A window of zero is empty even where the server's clock was set back behind created_at.
  select case when q.dedup_window_s > 0 then p_now - make_interval(secs => q.dedup_window_s)
              else 'infinity' end into v_window_start
  from skep.partition p join skep.queue q on q.id = p.queue_id where p.id = p_partition_id;

  open v_segments;
  loop
    fetch v_segments into v_segment;
    v_is_over := not found or v_segment.created_at <= v_window_start and not (
                   p_resolve and v_segment.last > p_guaranteed_to)
                 or v_segment.last <= p_guaranteed_to and p_guaranteed_since <= v_window_start;
    if not v_is_over then
      if v_segment.last > p_guaranteed_to then
        gap_first := v_segment.first;
        gap_created_at := coalesce(gap_created_at, v_segment.created_at);
        v_gap_bytes := v_gap_bytes + length(v_segment.keys);
        if v_gap_bytes < v_bytes_max then
          v_gap_keys := v_gap_keys || v_segment.keys;
        end if;
      elsif v_segment.created_at >= p_guaranteed_since then
        continue;
      end if;
      v_first := v_first || v_segment.first;
      v_keys := v_keys || v_segment.keys;
      v_bytes := v_bytes + length(v_segment.keys);
      -- As many at once as there are new keys, which every comparison takes apart.
      continue when v_bytes < least(length(p_keys), v_bytes_max);
    end if;

    for v_hit in
      select n.index, o.at
      from (
        select g as index, substr(p_keys, g * 16 + 1, 16) as key
        from generate_series(0, length(p_keys) / 16 - 1) g
      ) n
      join (
        select s.first + g as at, substr(s.keys, g * 16 + 1, 16) as key
        from unnest(v_first, v_keys) s(first, keys)
        cross join lateral generate_series(0, length(s.keys) / 16 - 1) g
      ) o on o.key = n.key
      order by o.at desc, n.index desc
    loop
      -- A lost call into a queue without a window may have stored a key as often as it was sent.
      continue when v_hit.index = any(duplicate_index) or v_hit.at = any(duplicate_offset);
      duplicate_index := duplicate_index || v_hit.index;
      duplicate_offset := duplicate_offset || v_hit.at;
    end loop;
    exit when v_is_over;
    v_first := '{}';
    v_keys := '{}';
    v_bytes := 0;
  end loop;
  close v_segments;

  if v_gap_bytes < v_bytes_max and gap_first = p_guaranteed_to + 1 then
    select string_agg(g.keys, '' order by g.number desc) into gap_keys
    from unnest(v_gap_keys) with ordinality g(keys, number);
  else
    gap_first := null; gap_created_at := null;
  end if;
  return next;
end $$;

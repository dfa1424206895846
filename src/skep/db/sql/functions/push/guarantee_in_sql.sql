-- guarantee_in_sql: prove that the keys of a push by SQL are absent, if that is cheap.
-- Takes   p_keys: of the messages to push, except new random ids.
-- Returns true if none of them is stored inside the queue's window. False may mean unknown.
-- Locks   none; the caller holds the partition, so nothing can be added meanwhile.
-- Why     A broker's cache proves absence without reading. SQL has no cache, and find_duplicates,
--         which locates each key, takes a hundred times as long per segment as a byte search. So
--         probing is left for pushes where the search hits, or with more than 20 keys.
create function skep.guarantee_in_sql(p_partition_id bigint, p_keys bytea[]) returns boolean
language plpgsql as $$
declare
  v_window_s integer;
  v_before bigint;
begin
  if cardinality(p_keys) = 0 then
    return true;
  end if;
  select q.dedup_window_s into v_window_s
  from skep.partition p join skep.queue q on q.id = p.queue_id where p.id = p_partition_id;
  if v_window_s is null or cardinality(p_keys) > 20 then
    return false;
  end if;
  v_before := skep.offset_before(
    p_partition_id, skep.now() - make_interval(secs => v_window_s));
  return v_window_s = 0 or not exists (
    select from skep.segment s
    cross join unnest(p_keys) k(key)
    where s.partition_id = p_partition_id and s.first > v_before and position(k.key in s.keys) > 0);
end $$;

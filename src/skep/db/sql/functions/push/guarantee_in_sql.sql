/*
guarantee_in_sql: find out whether a partition can be guaranteed, for the few keys of a push by SQL.

Takes   p_partition_id; p_keys: those of the messages to push, without those of ids just made.
Returns whether none of them is stored inside the window of the queue. False may mean that nobody
        knows.
Locks   none; the caller holds the partition, so nothing can be added meanwhile.
Why     A broker's cache answers this without looking. SQL has none, and probe_keys, which tells
        where each key is, takes a hundred times as long for a segment as a search for some bytes
        in it. So it is left for pushes where that search finds something, or that have many keys.
*/
create function skep.guarantee_in_sql(p_partition_id bigint, p_keys bytea[]) returns boolean
language plpgsql as $$
#variable_conflict use_column
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

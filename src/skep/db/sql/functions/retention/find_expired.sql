-- find_expired: find partitions with expired segments.
-- Takes   p_cutoff: older segments have expired. p_after: transactions up to this were walked
--         before. p_held_from: from where external readers need segments. p_limit: segments to
--         walk.
-- Returns one row: per partition, in ascending id, its newest expired segment; reached: the last
--         transaction walked; is_done: nothing old beyond.
-- Why     Retention must cost what it deletes, however many partitions there are. Transaction order
--         is nearly the order of time, so the walk ends soon after the first young segment. Only
--         nearly: a push gets its transaction id with its first partition and may wait for the
--         second before its segments are stamped. Hence some patience, and hence this only names
--         partitions, whose own order decides what is deleted. A transaction is walked as a whole
--         whatever the limit, so that the walk can resume after it.
create function skep.find_expired(
  p_queue_id integer, p_cutoff timestamptz, p_after xid8, p_held_from xid8, p_limit integer)
returns table (partition_id bigint[], first bigint[], reached xid8, is_done boolean)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_patience constant integer := 100;   -- young segments that may lie between old ones
  v_segment record;
  v_walked integer := 0;
  v_young integer := 0;
  v_id bigint[] := '{}';
  v_first bigint[] := '{}';
begin
  reached := p_after;
  is_done := true;
  for v_segment in
    select s.partition_id, s.first, s.xid, s.created_at from skep.segment s
    where s.queue_id = p_queue_id and s.xid > p_after and s.xid < p_held_from
    order by s.xid
  loop
    if v_walked >= p_limit and v_segment.xid <> reached then
      is_done := false;
      exit;
    end if;
    exit when v_young >= v_patience;
    v_walked := v_walked + 1;
    reached := v_segment.xid;
    if v_segment.created_at < p_cutoff then
      v_id := v_id || v_segment.partition_id;
      v_first := v_first || v_segment.first;
    else
      v_young := v_young + 1;
    end if;
  end loop;

  select array_agg(l.id order by l.id), array_agg(l.first order by l.id)
  into partition_id, first
  from (
    select u.id, max(u.first) as first from unnest(v_id, v_first) u(id, first) group by u.id
  ) l;
  return next;
end $$;

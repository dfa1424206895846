-- begin_archive: plan an archive run, or take over an unfinished one.
-- Takes   p_messages, p_segments: roughly how much a run copies.
-- Returns one row, transactions with upto exclusive; none if there is nothing to do.
-- Locks   the skep.archive row for update, then the skep.archive_run row.
-- Why     Only closed ranges: nothing can appear below the oldest running transaction. The range
--         ends at or right behind a transaction that left a segment, because ids beyond may be
--         reused after a server crash; and the plan must be committed synchronously, because it
--         guarantees the segments it saw. The walk goes by transaction and ends at the first
--         segment that is too young, so that one number says what is archived. A transaction is
--         never split, whatever the limits.
create function skep.begin_archive(p_queue_id integer, p_messages bigint, p_segments bigint)
returns table (run_id uuid, attempt integer, since bigint, upto bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_closed constant xid8 := pg_snapshot_xmin(pg_current_snapshot());
  v_cutoff timestamptz;
  v_since xid8;
  v_first xid8;                         -- the first transaction to copy
  v_upto xid8;
  v_segment record;
  v_messages bigint := 0;
  v_segments bigint := 0;
begin
  perform set_config('synchronous_commit', 'on', true);
  insert into skep.archive (queue_id, system)
  select q.id, skep.system_identity() from skep.queue q where q.id = p_queue_id
  on conflict (queue_id) do nothing;
  select a.upto into v_since from skep.archive a where a.queue_id = p_queue_id for update;

  update skep.archive_run r set attempt = r.attempt + 1 where r.queue_id = p_queue_id
  returning r.id, r.attempt, r.since::text::bigint, r.upto::text::bigint
  into run_id, attempt, since, upto;
  if found then
    return next;
    return;
  end if;

  select v_now - make_interval(secs => nullif(q.archive_after_s, 0)) into v_cutoff
  from skep.queue q where q.id = p_queue_id;
  for v_segment in
    select s.xid, s.created_at, s.last - s.first + 1 as messages from skep.segment s
    where s.queue_id = p_queue_id and s.xid >= v_since and s.xid < v_closed
    order by s.xid
  loop
    if v_cutoff is null or v_segment.created_at >= v_cutoff
       or ((v_messages >= p_messages or v_segments >= p_segments) and v_segment.xid >= v_upto) then
      v_upto := v_segment.xid;
      exit;
    end if;
    v_first := coalesce(v_first, v_segment.xid);
    v_upto := ((v_segment.xid::text::bigint + 1)::text)::xid8;
    v_messages := v_messages + v_segment.messages;
    v_segments := v_segments + 1;
  end loop;
  if v_first is null or v_first >= v_upto then
    return;
  end if;

  insert into skep.archive_run as r (queue_id, since, upto, planned_at)
  values (p_queue_id, v_since, v_upto, v_now)
  returning r.id, r.attempt, r.since::text::bigint, r.upto::text::bigint
  into run_id, attempt, since, upto;
  return next;
end $$;

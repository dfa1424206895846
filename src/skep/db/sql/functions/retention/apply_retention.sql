-- apply_retention: delete some expired messages of a queue. One step of a run.
-- Takes   p_service, p_holder: the leadership it runs under. p_run_id: for the history. p_kind:
--         retention (older than retention_s or ttl_s) or completed (older than
--         completed_retention_s and done by every group). p_after: reached of the previous step, 0
--         to begin. p_limit: segments to look at.
-- Returns one row, none if the queue is gone; is_done: the run needs no further step.
-- Raises  SK423 as assert_leadership.
-- Locks   as held_from; then as delete_segments; then the history row.
-- Why     Bounded, so that it holds partitions for milliseconds. It gives up after waiting two
--         seconds for a lock: the session that holds it matters more.
create function skep.apply_retention(
  p_service text, p_holder uuid, p_run_id uuid, p_queue_id integer, p_kind text, p_after bigint,
  p_limit integer)
returns table (
  messages bigint, segments bigint, partitions bigint, reached bigint, is_done boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  v_started constant timestamptz := skep.now();
  v_cutoff timestamptz;
  v_held_from xid8;
  v_found record;
begin
  perform skep.assert_leadership(p_service, p_holder);
  select v_started - make_interval(secs => case p_kind
           when 'completed' then
             case when q.retention_enabled then nullif(q.completed_retention_s, 0) end
           else least(case when q.retention_enabled then nullif(q.retention_s, 0) end,
                      nullif(q.ttl_s, 0)) end)
  into v_cutoff
  from skep.queue q where q.id = p_queue_id;
  if not found then
    return;
  end if;

  v_held_from := skep.held_from(p_queue_id);
  select * into v_found from skep.find_expired(
    p_queue_id, coalesce(v_cutoff, '-infinity'), p_after::text::xid8, v_held_from, p_limit);
  select d.messages, d.segments, d.partitions into messages, segments, partitions
  from skep.delete_segments(
    coalesce(v_found.partition_id, '{}'), coalesce(v_found.first, '{}'),
    coalesce(v_cutoff, '-infinity'), v_held_from, p_kind = 'completed') d;
  if segments > 0 then
    perform skep.record_removal(
      p_run_id, p_queue_id, p_kind, messages, segments, partitions, v_started);
  end if;
  reached := v_found.reached::text::bigint;
  is_done := v_found.is_done;
  return next;
end $$;

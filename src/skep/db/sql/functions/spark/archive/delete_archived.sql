-- delete_archived: delete archived segments that no reader waits for from the live log.
-- Takes   p_run_id: for the history. p_after: transactions up to this were looked at, 0 to begin.
--         p_limit: segments to look at.
-- Returns what was deleted; reached: the last transaction looked at; is_done: nothing beyond.
-- Locks   skep.hold in share mode (held_from); then as delete_segments; then the history row.
-- Why     The rules of completed retention: unread messages stay, external readers keep what they
--         hold, and without readers nothing goes. Keys inside dedup_window_s stay with their
--         segments. An archived segment that stays costs only space, so this gives up after waiting
--         two seconds for a lock; the next call tries again.
create function skep.delete_archived(
  p_run_id uuid, p_queue_id integer, p_after bigint, p_limit integer)
returns table (
  messages bigint, segments bigint, partitions bigint, reached bigint, is_done boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  v_started constant timestamptz := skep.now();
  v_bound xid8;
  v_cutoff timestamptz;
  v_found record;
begin
  messages := 0; segments := 0; partitions := 0; reached := p_after; is_done := true;
  select a.upto, v_started - make_interval(secs => q.dedup_window_s) into v_bound, v_cutoff
  from skep.archive a join skep.queue q on q.id = a.queue_id
  where a.queue_id = p_queue_id and a.system = skep.system_identity();
  if not found then
    return next;
    return;
  end if;
  begin
    v_bound := least(v_bound::text::numeric, skep.held_from(p_queue_id)::text::numeric)::text::xid8;
    select * into v_found from skep.find_expired(
      p_queue_id, v_cutoff, p_after::text::xid8, v_bound, p_limit);
    select d.messages, d.segments, d.partitions into messages, segments, partitions
    from skep.delete_segments(
      coalesce(v_found.partition_id, '{}'), coalesce(v_found.first, '{}'), v_cutoff, v_bound,
      true) d;
    if segments > 0 then
      perform skep.record_removal(
        p_run_id, p_queue_id, 'archive', messages, segments, partitions, v_started);
    end if;
    reached := v_found.reached::text::bigint;
    is_done := v_found.is_done;
  exception when lock_not_available or deadlock_detected then
    messages := 0; segments := 0; partitions := 0;
  end;
  return next;
end $$;

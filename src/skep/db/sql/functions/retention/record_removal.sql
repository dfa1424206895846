-- record_removal: add what a step removed to the history of its run.
-- Takes   p_started_at: when the step began.
-- Locks   the skep.retention_history row.
-- Why     Written in the transaction of the step, so the history is correct whatever crashes. A run
--         that removes nothing leaves no row.
create function skep.record_removal(
  p_run_id uuid, p_queue_id integer, p_kind text, p_messages bigint, p_segments bigint,
  p_partitions bigint, p_started_at timestamptz) returns void
language sql as $$
  insert into skep.retention_history as h (
    run_id, queue_id, kind, messages, segments, partitions, started_at, duration_ms)
  select p_run_id, p_queue_id, p_kind, p_messages, p_segments, p_partitions, p_started_at,
         extract(epoch from skep.now() - p_started_at) * 1000
  on conflict (run_id, queue_id, kind) do update
  set messages = h.messages + excluded.messages,
      segments = h.segments + excluded.segments,
      partitions = h.partitions + excluded.partitions,
      duration_ms = extract(epoch from skep.now() - h.started_at) * 1000;
$$;

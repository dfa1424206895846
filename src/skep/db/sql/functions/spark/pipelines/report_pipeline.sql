/*
report_pipeline: say how a pipeline is doing, and learn whether it should go on.

Takes   p_run_id: which run. p_state: starting, running, stopped or failed. p_position: by sink and
        source, null to leave it as it is. p_batches, p_messages: of this run so far. p_rate:
        messages per second. p_lag_messages, p_lag_s: null if unknown. p_error: null to leave it.
        p_recent: the last micro-batches, null to leave them.
Returns should_stop: somebody asked it to. No row when another run has taken its place.
Locks   the skep.pipeline row.
Why     A heartbeat and a question in one: who can report can be stopped.
*/
create function skep.report_pipeline(
  p_run_id uuid, p_state text, p_position json, p_batches bigint, p_messages bigint,
  p_rate double precision, p_lag_messages bigint, p_lag_s bigint, p_error text,
  p_recent json default null)
returns table (should_stop boolean)
language sql as $$
  update skep.pipeline p set
    state = p_state, position = coalesce(p_position, p.position), batches = p_batches,
    messages = p_messages, rate = p_rate, lag_messages = coalesce(p_lag_messages, p.lag_messages),
    lag_s = coalesce(p_lag_s, p.lag_s), last_error = coalesce(p_error, p.last_error),
    recent = coalesce(p_recent, p.recent), seen_at = skep.now(),
    ended_at = case when p_state in ('stopped', 'failed') then skep.now() end
  where p.run_id = p_run_id
  returning p.should_stop;
$$;

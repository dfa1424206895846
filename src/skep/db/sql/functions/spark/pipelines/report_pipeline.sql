-- report_pipeline: report a pipeline's state and learn whether it should stop.
-- Takes   p_position: by sink and source. p_batches, p_messages: of this run. p_recent: the last
--         micro-batches. p_expectations: of this run. Null leaves position, lags, error, recent
--         and expectations unchanged.
-- Returns should_stop. No row if another run has replaced it.
-- Locks   the skep.pipeline row.
-- Why     Heartbeat and question in one: a run that reports can be stopped.
create function skep.report_pipeline(
  p_run_id uuid, p_state text, p_position json, p_batches bigint, p_messages bigint,
  p_rate double precision, p_lag_messages bigint, p_lag_s bigint, p_error text,
  p_recent json default null, p_expectations json default null)
returns table (should_stop boolean)
language sql as $$
  update skep.pipeline p set
    state = p_state, position = coalesce(p_position, p.position), batches = p_batches,
    messages = p_messages, rate = p_rate, lag_messages = coalesce(p_lag_messages, p.lag_messages),
    lag_s = coalesce(p_lag_s, p.lag_s), last_error = coalesce(p_error, p.last_error),
    recent = coalesce(p_recent, p.recent),
    expectations = coalesce(p_expectations, p.expectations), seen_at = skep.now(),
    ended_at = case when p_state in ('stopped', 'failed') then skep.now() end
  where p.run_id = p_run_id
  returning p.should_stop;
$$;

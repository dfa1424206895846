-- job_state: the state of a job, as shown.
-- Takes   p_state (of skep.job), p_open_blockers, p_worker_id, p_due_at (of skep.open_job), p_now.
-- Returns blocked, running, scheduled or ready for an open job; otherwise its final state.
-- Why     The states of an open job are not stored: each would cost one more write per step.
create function skep.job_state(
  p_state text, p_open_blockers integer, p_worker_id uuid, p_due_at timestamptz,
  p_now timestamptz)
returns text
language sql immutable as $$
  select case when p_state <> 'open' then p_state
              when p_open_blockers > 0 then 'blocked'
              when p_worker_id is not null then 'running'
              when p_due_at > p_now then 'scheduled'
              else 'ready' end;
$$;

-- finish_redrive: end a running redrive.
-- Takes   p_owner: only if it owns the job, null for any. p_state: done, cancelled or failed.
-- Returns whether it was running.
-- Locks   the skep.redrive row, which waits for a batch in flight.
-- Why     What ended stays ended: a worker stops with its job, and a finished one cannot be
--         cancelled.
create function skep.finish_redrive(p_id uuid, p_owner uuid, p_state text, p_error text)
returns boolean
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
begin
  update skep.redrive r
  set state = p_state, error = p_error, progressed_at = v_now, finished_at = v_now
  where r.id = p_id and r.state = 'running' and (p_owner is null or r.owner = p_owner);
  return found;
end $$;

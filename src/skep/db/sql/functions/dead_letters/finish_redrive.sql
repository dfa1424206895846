/*
finish_redrive: end a running redrive.

Takes   p_id; p_owner: only if it is still theirs, or null for whoever's; p_state: 'done',
        'cancelled' or 'failed'; p_error: why it failed.
Returns whether it was running.
Locks   the skep.redrive row: a batch in flight is waited for.
Why     What ended stays ended: a worker that finds its job cancelled stops, and a job that is done
        cannot be cancelled.
*/
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

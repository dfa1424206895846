/*
cancel_scheduled: take back a message whose time has not come.

Takes   p_id.
Returns whether it was still waiting.
Locks   the row of skep.scheduled.
Why     Waits for a session that is just sequencing the message; then it is too late, and this says
        so.
*/
create function skep.cancel_scheduled(p_id bigint) returns boolean
language sql as $$
  with cancelled as (delete from skep.scheduled s where s.id = p_id returning 1)
  select exists (select from cancelled);
$$;

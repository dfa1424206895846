-- cancel_scheduled: cancel a scheduled message.
-- Returns whether it was still waiting.
-- Locks   the skep.scheduled row.
-- Why     It waits for a session that is sequencing the message; then it is too late.
create function skep.cancel_scheduled(p_id bigint) returns boolean
language sql as $$
  with cancelled as (delete from skep.scheduled s where s.id = p_id returning 1)
  select exists (select from cancelled);
$$;

-- resign_leadership: give up leadership at once.
-- Returns whether p_holder was the recorded leader.
-- Locks   the skep.leadership row.
-- Why     After a planned restart the work must not wait for the lease to expire.
create function skep.resign_leadership(p_service text, p_holder uuid) returns boolean
language plpgsql as $$
begin
  delete from skep.leadership l where l.service = p_service and l.holder = p_holder;
  return found;
end $$;

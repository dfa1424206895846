/*
resign_leadership: let others do a kind of background work at once.

Takes   p_service, p_holder: as take_leadership.
Returns whether p_holder was the holder on record.
Locks   the skep.leadership row.
Why     A planned restart must not leave the work undone until a lease has run out.
*/
create function skep.resign_leadership(p_service text, p_holder uuid) returns boolean
language plpgsql as $$
#variable_conflict use_column
begin
  delete from skep.leadership l where l.service = p_service and l.holder = p_holder;
  return found;
end $$;

-- job_type_pause: pause or resume a job type.
-- Returns whether the type exists.
-- Locks   the skep.job_type row.
-- Why     Waiting jobs keep their order, due times and deadlines; running jobs go on.
create function skep.job_type_pause(p_name text, p_is_paused boolean) returns boolean
language plpgsql as $$
begin
  update skep.job_type t set is_paused = p_is_paused where t.name = p_name;
  return found;
end $$;

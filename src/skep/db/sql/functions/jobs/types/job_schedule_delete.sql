-- job_schedule_delete: delete a schedule.
-- Returns whether it existed.
-- Locks   the skep.job_schedule row.
-- Why     Chains that it started go on.
create function skep.job_schedule_delete(p_name text) returns boolean
language plpgsql as $$
begin
  delete from skep.job_schedule s where s.name = p_name;
  return found;
end $$;

/*
job_schedule_delete: forget a schedule.

Takes   p_name.
Returns whether there was one.
Locks   the skep.job_schedule row.
Why     Chains that it started go on.
*/
create function skep.job_schedule_delete(p_name text) returns boolean
language plpgsql as $$
begin
  delete from skep.job_schedule s where s.name = p_name;
  return found;
end $$;

/*
job_type_pause: hold up the jobs of a type, or let them run again.

Takes   p_name; p_is_paused.
Returns whether there is such a type.
Locks   the skep.job_type row.
Why     Jobs wait where they are: their order, due times and deadlines stay, and what runs goes on.
*/
create function skep.job_type_pause(p_name text, p_is_paused boolean) returns boolean
language plpgsql as $$
begin
  update skep.job_type t set is_paused = p_is_paused where t.name = p_name;
  return found;
end $$;

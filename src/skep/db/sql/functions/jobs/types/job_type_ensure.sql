/*
job_type_ensure: give the ids of job names, those of new names included.

Takes   p_name: names, in any order; a name may come twice.
Returns one row per distinct name: name, id.
Locks   the rows of new names, in the order of the names.
Why     Ids are small and constant, so that processes may keep them. A new name inside a user's
        transaction would let others with the same new name wait for its end: clients and workers
        come here by themselves first.
*/
create function skep.job_type_ensure(p_name text[]) returns table (name text, id integer)
language plpgsql as $$
#variable_conflict use_column
begin
  insert into skep.job_type (name)
  select distinct u.name from unnest(p_name) u(name)
  where not exists (select from skep.job_type t where t.name = u.name)
  order by u.name
  on conflict (name) do nothing;
  return query
  select t.name, t.id from skep.job_type t where t.name = any (p_name);
end $$;

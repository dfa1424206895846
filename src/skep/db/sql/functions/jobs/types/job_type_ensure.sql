-- job_type_ensure: the ids of job type names, creating missing ones.
-- Takes   p_name: in any order; a name may repeat.
-- Returns per distinct name: name, id.
-- Locks   rows of new names, in name order.
-- Why     Ids are constant, so processes may cache them. A new name inside a user's transaction
--         would block others with the same new name until its end: clients and workers call this
--         first, on its own.
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

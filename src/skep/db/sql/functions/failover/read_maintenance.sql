-- read_maintenance: the maintenance modes that are on.
-- Returns one row.
-- Why     Every process asks once a second and remembers the answer for all requests in between.
create function skep.read_maintenance()
returns table (is_push_on boolean, is_pop_on boolean)
language sql stable as $$
  select coalesce(bool_or(m.enabled) filter (where m.mode = 'push'), false),
         coalesce(bool_or(m.enabled) filter (where m.mode = 'pop'), false)
  from skep.maintenance_mode m;
$$;

-- forget_instance: remove an instance that shuts down as planned.
-- Locks   its skep.instance row.
-- Why     A planned shutdown must not look like a crash.
create function skep.forget_instance(p_id uuid)
returns void
language sql as $$
  delete from skep.instance where id = p_id;
$$;

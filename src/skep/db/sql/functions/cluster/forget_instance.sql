-- forget_instance: remove an instance that shuts down as planned.
-- Locks   its skep.instance row, then as note_marker.
-- Why     A planned shutdown must not look like a crash.
create function skep.forget_instance(p_id uuid)
returns void
language sql as $$
  with gone as (
    delete from skep.instance i where i.id = p_id returning i.host, i.port, i.version
  )
  select skep.note_marker(skep.now(), 'stop', g.host || ':' || g.port, g.version) from gone g;
$$;

-- note_marker: note what happened to an instance, and forget the oldest markers.
-- Locks   the rows deleted, skipping locked ones.
-- Why     An instance that crashes in a loop must not fill the table. First sights of versions stay:
--         they tell a deploy from a restart.
create function skep.note_marker(p_at timestamptz, p_kind text, p_instance text, p_version text)
returns void
language sql as $$
  insert into skep.marker (at, kind, instance, version)
  values (p_at, p_kind, p_instance, p_version);

  delete from skep.marker where id in (
    select m.id from skep.marker m
    where m.id < (select max(x.id) from skep.marker x) - 1000 and m.kind <> 'deploy'
    order by m.id limit 100
    for update skip locked);
$$;

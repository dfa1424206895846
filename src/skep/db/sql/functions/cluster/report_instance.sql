-- report_instance: record that an instance is alive.
-- Takes   p_id: new at each start. p_missing_s: after so long without a report another is lost.
-- Locks   skep.instance rows: its own, and those lost or dead, skipping locked ones; then as
--         note_marker.
-- Why     One write per report, however large the installation. An instance that crashed is noted
--         as lost, once, and deleted after an hour, by any other that reports. The first report
--         of an instance tells whether its version or its address was seen before.
create function skep.report_instance(
  p_id uuid, p_host text, p_port integer, p_version text, p_worker_count integer,
  p_missing_s double precision default 15)
returns void
language plpgsql as $$
declare
  c_instance constant text := p_host || ':' || p_port;
  v_lost skep.instance;
begin
  delete from skep.instance where id in (
    select i.id from skep.instance i
    where i.seen_at < skep.now() - interval '1 hour' and i.id <> p_id
    for update skip locked);

  for v_lost in
    update skep.instance i set is_lost = true
    where i.id in (
      select o.id from skep.instance o
      where o.seen_at < skep.now() - make_interval(secs => p_missing_s) and not o.is_lost
        and o.id <> p_id
      for update skip locked)
    returning i.*
  loop
    perform skep.note_marker(
      v_lost.seen_at, 'loss', v_lost.host || ':' || v_lost.port, v_lost.version);
  end loop;

  if not exists (select from skep.instance i where i.id = p_id) then
    perform skep.note_marker(
      skep.now(),
      case
        when not exists (
          select from skep.marker m where m.kind = 'deploy' and m.version = p_version)
          then 'deploy'
        when exists (select from skep.marker m where m.instance = c_instance) then 'restart'
        else 'start'
      end,
      c_instance, p_version);
  end if;

  insert into skep.instance as i (id, host, port, version, worker_count, started_at, seen_at)
  values (p_id, p_host, p_port, p_version, p_worker_count, skep.now(), skep.now())
  on conflict (id) do update set seen_at = excluded.seen_at, is_lost = false;
end $$;

-- report_instance: record that an instance is alive.
-- Takes   p_id: new at each start.
-- Locks   its skep.instance row; rows of dead instances, skipping locked ones.
-- Why     One write per report, however large the installation. An instance that crashed is deleted
--         after an hour, by any other that reports.
create function skep.report_instance(
  p_id uuid, p_host text, p_port integer, p_version text, p_worker_count integer)
returns void
language sql as $$
  delete from skep.instance where id in (
    select i.id from skep.instance i
    where i.seen_at < skep.now() - interval '1 hour' and i.id <> p_id
    for update skip locked);

  insert into skep.instance as i (id, host, port, version, worker_count, started_at, seen_at)
  values (p_id, p_host, p_port, p_version, p_worker_count, skep.now(), skep.now())
  on conflict (id) do update set seen_at = excluded.seen_at;
$$;

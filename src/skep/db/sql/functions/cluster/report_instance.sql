/*
report_instance: say that an instance is alive.

Takes   p_id: which one, new at each start. p_host, p_port: where it listens. p_version: of Skep.
        p_worker_count: its processes.
Returns nothing.
Locks   its skep.instance row; those of instances that are long gone, skip locked.
Why     One row per instance and one write per report, whatever the size of the installation.
        Instances that ended without a word are forgotten after an hour, by whoever reports next.
*/
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

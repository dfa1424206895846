/*
register_worker: note that a worker process has begun to report.

Takes   p_hostname, p_port: its instance. p_number: which worker of it. p_pid.
Returns its id for everything it records, and the time by the database's clock.
Locks   none.
Why     A process that is restarted is another worker: its counters begin anew.
*/
create function skep.register_worker(
  p_hostname text, p_port integer, p_number integer, p_pid integer)
returns table (worker_id integer, registered_at timestamptz)
language sql as $$
  insert into skep.metric_worker (hostname, port, number, pid, started_at, seen_at)
  values (p_hostname, p_port, p_number, p_pid, skep.now(), skep.now())
  returning id, seen_at;
$$;

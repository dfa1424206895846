-- register_worker: register a worker process for metrics.
-- Takes   p_number: its number in its instance.
-- Returns its id for everything it records, and the database's time.
-- Locks   none.
-- Why     A restarted process is a new worker: its counters start at 0.
create function skep.register_worker(
  p_hostname text, p_port integer, p_number integer, p_pid integer)
returns table (worker_id integer, registered_at timestamptz)
language sql as $$
  insert into skep.metric_worker (hostname, port, number, pid, started_at, seen_at)
  values (p_hostname, p_port, p_number, p_pid, skep.now(), skep.now())
  returning id, seen_at;
$$;

/*
read_rules: what a broker must know of queues to push into them.

Takes   p_queue_id.
Returns one row per queue that exists: queue_id, version, dedup_window_s.
Locks   none.
Why     Read when a broker meets a queue, and again when check_rules refuses its version.
*/
create function skep.read_rules(p_queue_id integer[])
returns table (queue_id integer, version integer, dedup_window_s integer)
language sql stable as $$
  select q.id, q.version, q.dedup_window_s from skep.queue q where q.id = any(p_queue_id);
$$;

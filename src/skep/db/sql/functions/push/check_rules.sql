-- check_rules: check that a push was prepared by the current rules of its queues.
-- Takes   the queues of a call and the versions known to the broker.
-- Returns the longest duplicate window of these queues in seconds; null if one does not exist.
-- Raises  SK409 if a queue was reconfigured.
-- Locks   none.
-- Why     Brokers cache how a queue encrypts, validates and deduplicates. One look per queue and
--         call keeps messages from being stored by outdated rules. A missing queue does not raise:
--         push_segments handles its partitions, which may still wait to be swept.
create function skep.check_rules(p_queue_id integer[], p_version integer[]) returns integer
language plpgsql stable as $$
declare
  v_is_stale boolean;
  v_window integer;
begin
  select bool_or(q.version <> u.version),
         case when count(*) = cardinality(p_queue_id) then max(q.dedup_window_s) end
  into v_is_stale, v_window
  from unnest(p_queue_id, p_version) u(id, version)
  cross join lateral (
    select q.version, q.dedup_window_s from skep.queue q where q.id = u.id offset 0
  ) q;
  if v_is_stale then
    raise exception using errcode = 'SK409', message = 'the queue was reconfigured';
  end if;
  return v_window;
end $$;

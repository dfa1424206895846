/*
check_rules: make sure that a push follows the rules now in force in its queues.

Takes   p_queue_id, p_version: the queues of a call, and the version of each by which the broker
        prepared its messages.
Returns the longest duplicate window of these queues in seconds; null when one of them does not
        exist.
Raises  SK409 when a queue was configured anew since.
Locks   none.
Why     Brokers remember how a queue wants its messages: encrypted, validated, deduplicated. One
        look per queue and call makes sure that nothing is stored by a rule that was changed,
        whichever broker changed it. A queue that is gone is no reason to raise: its partitions,
        which may still wait to be swept, are sorted out by push_segments.
*/
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
    raise exception using errcode = 'SK409', message = 'the queue was configured anew';
  end if;
  return v_window;
end $$;

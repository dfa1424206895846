/*
count_scheduled: how many messages wait for their time, up to a bound.

Takes   p_queue, p_partition: only of these; null for any. p_at_most.
Returns the number, or p_at_most when there are as many or more.
Locks   none.
Why     The bound keeps a listing quick however many wait.
*/
create function skep.count_scheduled(p_queue text, p_partition text, p_at_most integer)
returns integer
language sql stable as $$
  select count(*)::integer
  from (
    select from skep.scheduled s
    where (p_queue is null or s.queue_id = (select n.id from skep.queue n where n.name = p_queue))
      and (p_partition is null or s.partition = p_partition)
    limit p_at_most
  ) w;
$$;

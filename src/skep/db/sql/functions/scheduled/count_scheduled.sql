-- count_scheduled: count scheduled messages, up to a bound.
-- Takes   p_queue, p_partition: null for any.
-- Returns the number, at most p_at_most.
-- Why     The bound keeps a listing fast.
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

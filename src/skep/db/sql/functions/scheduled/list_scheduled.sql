-- list_scheduled: a page of scheduled messages.
-- Takes   p_id: only this one; p_queue, p_partition; null for any. p_after: the last id seen.
-- Returns by id, the order of scheduling; envelope is null unless p_id is given.
-- Why     Id order is stable while paging. One function keeps the columns of both uses the same.
create function skep.list_scheduled(
  p_id bigint, p_queue text, p_partition text, p_after bigint, p_limit integer)
returns table (
  id bigint, queue text, partition text, transaction_id text, envelope bytea,
  deliver_at timestamptz, created_at timestamptz)
language sql stable as $$
  select s.id, q.name, s.partition, s.transaction_id,
         case when p_id is not null then s.envelope end, s.deliver_at, s.created_at
  from skep.scheduled s
  join skep.queue q on q.id = s.queue_id
  where (p_id is null or s.id = p_id)
    and (p_queue is null or s.queue_id = (select n.id from skep.queue n where n.name = p_queue))
    and (p_partition is null or s.partition = p_partition)
    and s.id > p_after
  order by s.id
  limit p_limit;
$$;

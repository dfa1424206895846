-- queues_waiting: which queues hold a message that waits for their slowest group.
-- Takes   p_queue_id: the queues to look at.
-- Returns the ids of those.
-- Why     The condition of a queue asks whether something waits, not how much: the first partition
--         with something to read ends the search, through the partial index of cursors. Groups
--         count as in counts_as_reader; without groups, what is kept waits.
create function skep.queues_waiting(p_queue_id integer[]) returns setof integer
language sql stable as $$
  select q.id
  from unnest(p_queue_id) q(id)
  cross join lateral (
    select array_agg(g.id) as ids
    from skep.consumer_group g where g.queue_id = q.id and skep.counts_as_reader(g)
  ) readers
  where case
    when readers.ids is null then exists (
      select from skep.partition p where p.queue_id = q.id and p.head >= p.tail)
    else exists (
      select from unnest(readers.ids) g(id)
      cross join lateral (
        select from skep.cursor c
        cross join lateral (
          select p.head, p.tail from skep.partition p where p.id = c.partition_id offset 0
        ) p
        where c.group_id = g.id and c.available_at is not null
          and skep.partition_backlog(p.head, p.tail, c.acked, c.done) > 0
        limit 1
      ) w)
    end;
$$;

-- matching_letters: the dead letters that match a filter.
-- Takes   p_from, p_to: when the group gave up; p_error: part of the error text. Null matches
--         everything.
-- Returns rows of skep.dead_letter, unordered.
-- Why     The one definition of the filter, so that listing, counting, deleting and redriving
--         agree. A single stable select: the planner inlines it and drops conditions that are null,
--         so callers force a custom plan.
create function skep.matching_letters(
  p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
  p_error text, p_ids bigint[])
returns setof skep.dead_letter
language sql stable as $$
  select d.*
  from skep.dead_letter d
  where (p_ids is null or d.id = any(p_ids))
    and (p_queue is null
         or d.queue_id = (select q.id from skep.queue q where q.name = p_queue))
    and (p_group is null
         or d.group_id = any(array(
              select g.id from skep.consumer_group g where g.name = p_group)))
    and (p_partition is null
         or d.partition_id = any(array(
              select p.id from skep.queue q
              join skep.partition p on p.queue_id = q.id and p.name = p_partition
              where q.name = p_queue)))
    and (p_from is null or d.failed_at >= p_from)
    and (p_to is null or d.failed_at <= p_to)
    and (p_error is null or strpos(d.error, p_error) > 0);
$$;

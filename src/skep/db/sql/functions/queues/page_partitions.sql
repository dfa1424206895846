-- page_partitions: the next partitions of a queue, for work in small steps.
-- Takes   p_from: the first name, '' to begin.
-- Returns one row: the ids, ascending, and next_name: where the next page begins, null at the end.
-- Why     A change to a hundred thousand partitions must not hold all their locks at once. Paged by
--         name, the only index by queue; ids ascend, as their cursors must be locked.
create function skep.page_partitions(p_queue_id integer, p_from text, p_limit integer)
returns table (partition_id bigint[], next_name text)
language sql stable as $$
  select coalesce(array_agg(p.id order by p.id) filter (where p.place <= p_limit), '{}'),
         max(p.name) filter (where p.place > p_limit)
  from (
    select p.id, p.name, row_number() over (order by p.name) as place
    from (
      select p.id, p.name from skep.partition p
      where p.queue_id = p_queue_id and p.name >= p_from
      order by p.name limit p_limit + 1
    ) p
  ) p;
$$;

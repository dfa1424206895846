-- count_partitions: count the partitions of a listing.
-- Returns the number.
-- Why     Separate from list_partitions: paging by partition need not pay for it.
create function skep.count_partitions(p_queue_id integer, p_search text) returns bigint
language sql stable as $$
  select count(*)
  from skep.partition p
  join skep.queue q on q.id = p.queue_id
  where (p_queue_id is null or p.queue_id = p_queue_id)
    and (p_search is null or position(lower(p_search) in lower(p.name)) > 0)
$$;

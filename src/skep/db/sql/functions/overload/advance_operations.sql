/*
advance_operations: let the next operation of a partition have its turn.

Takes   p_partition_id, p_type: partitions, in parallel arrays, none twice.
Returns nothing.
Locks   the skep.operation row that has its turn now; the caller holds the partitions.
Why     A partition of which nothing is marked would never be found by claim_operations; so whoever takes
        the marked one away ends with this.
*/
create function skep.advance_operations(p_partition_id bigint[], p_type text[]) returns void
language sql as $$
  update skep.operation o
  set is_next = true, available_at = least(o.available_at, skep.now())
  from unnest(p_partition_id, p_type) l(partition_id, type)
  cross join lateral (
    select n.id from skep.operation n
    where n.partition_id = l.partition_id and n.type = l.type
      and n.status in ('waiting', 'processing')
    order by n.number limit 1
  ) n
  where o.id = any(array[n.id]) and not o.is_next;
$$;

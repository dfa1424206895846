-- changed_partitions: the partitions of queues that were written at or after some moments.
-- Takes   per entry, in parallel arrays: p_queue; p_since, null for all; p_after_queue and p_after:
--         the place of the page before, null to begin; p_limit. p_looks: how many partitions to
--         look at in all.
-- Returns per entry one row without a partition: queue_id, null if the queue does not exist;
--         is_other, if p_after_queue is not its id; looked_to: where the next page goes on, null at
--         the end. Before it, its partitions in the order of their creation.
-- Why     What was written last has no index, which every push would have to keep; so partitions
--         are walked in order, a bounded number in a call, however many there are and however few
--         have changed. A page may be short for that, and then says where to go on.
create function skep.changed_partitions(
  p_queue text[], p_since timestamptz[], p_after_queue integer[], p_after bigint[],
  p_limit integer[], p_looks integer)
returns table (
  entry integer, queue_id integer, is_other boolean, looked_to bigint, partition_id bigint,
  name text, head bigint, tail bigint, written_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_looks integer := p_looks;
  v_queue_id integer;
  v_left integer;
  v_to bigint;
  v_partition record;
begin
  for i in 1 .. cardinality(p_queue) loop
    entry := i;
    looked_to := null;
    partition_id := null;
    select q.id, q.id <> p_after_queue[i] into v_queue_id, is_other
    from skep.queue q where q.name = p_queue[i];
    queue_id := v_queue_id;
    if v_queue_id is not null and is_other is not true then
      v_left := p_limit[i];
      v_to := coalesce(p_after[i], 0);
      if v_looks <= 0 then
        looked_to := v_to;
      end if;
      for v_partition in
        select p.id, p.name, p.head, p.tail, p.pushed_at, p.created_at
        from skep.partition p
        where p.queue_id = v_queue_id and p.id > v_to
        order by p.queue_id, p.id
        limit greatest(v_looks, 0)
      loop
        v_looks := v_looks - 1;
        v_to := v_partition.id;
        if p_since[i] is null or v_partition.pushed_at >= p_since[i] then
          partition_id := v_partition.id;
          name := v_partition.name;
          head := v_partition.head;
          tail := v_partition.tail;
          written_at := case when v_partition.head > 0 then v_partition.pushed_at
                             else v_partition.created_at end;
          return next;
          v_left := v_left - 1;
        end if;
        if v_left = 0 or v_looks = 0 then
          looked_to := v_to;
          exit;
        end if;
      end loop;
    end if;
    partition_id := null;
    return next;
  end loop;
end $$;

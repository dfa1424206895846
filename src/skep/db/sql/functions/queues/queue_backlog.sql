-- queue_backlog: messages of a queue that wait for its slowest group, up to a bound.
-- Returns the number, at most p_at_most; leased messages count. Without groups: the messages kept.
-- Why     Only partitions with something to read are visited, through the partial index of cursors,
--         until the bound is reached. Many partitions that only look ready (of a new group) can
--         make the number too small, never the walk too long. Groups count as in counts_as_reader.
create function skep.queue_backlog(p_queue_id integer, p_at_most bigint) returns bigint
language plpgsql stable as $$
declare
  v_group_id integer;
  v_backlog bigint := 0;
  v_waiting bigint;
  v_partition_count bigint;
begin
  for v_group_id in
    select g.id from skep.consumer_group g
    where g.queue_id = p_queue_id and skep.counts_as_reader(g)
  loop
    v_waiting := 0;
    for v_partition_count in
      select skep.partition_backlog(p.head, p.tail, c.acked, c.done)
      from (
        select c.partition_id, c.acked, c.done from skep.cursor c
        where c.group_id = v_group_id and c.available_at is not null
        order by c.available_at limit p_at_most
      ) c
      cross join lateral (
        select p.head, p.tail from skep.partition p where p.id = c.partition_id offset 0
      ) p
    loop
      v_waiting := v_waiting + v_partition_count;
      exit when v_waiting >= p_at_most;
    end loop;
    v_backlog := greatest(v_backlog, v_waiting);
    exit when v_backlog >= p_at_most;
  end loop;

  if v_group_id is null then
    select coalesce(sum(k.kept), 0) into v_backlog
    from (
      select p.head - p.tail + 1 as kept from skep.partition p
      where p.queue_id = p_queue_id and p.head >= p.tail limit p_at_most
    ) k;
  end if;
  return least(v_backlog, p_at_most);
end $$;

-- sweep_removed_queue: delete some rows of a removed queue.
-- Takes   p_queue_id: null for any. p_rows: roughly how many.
-- Returns whether to call again: false if nothing is left or another session sweeps it.
-- Locks   the skep.removed_queue row for update, skipping locked ones; then, once only partitions
--         are left, as drop_partitions.
-- Why     Small transactions: others wait briefly, and after a crash the next call goes on. A push
--         or ack in flight may still write to a partition; it holds the partition or its cursor, so
--         its rows are deleted with them.
create function skep.sweep_removed_queue(p_queue_id integer, p_rows integer) returns boolean
language plpgsql as $$
declare
  c_rows_per_partition constant integer := 5;
  v_queue_id integer;
  v_partitions bigint[];
begin
  select r.queue_id into v_queue_id from skep.removed_queue r
  where p_queue_id is null or r.queue_id = p_queue_id
  order by r.removed_at limit 1
  for update skip locked;
  if not found then
    return false;
  end if;

  delete from skep.segment s using (
    select s.partition_id, s.first from skep.segment s
    where s.queue_id = v_queue_id order by s.xid limit p_rows
  ) d
  where s.partition_id = d.partition_id and s.first = d.first;
  if found then
    return true;
  end if;
  delete from skep.dead_letter d
  where d.id in (select d.id from skep.dead_letter d where d.queue_id = v_queue_id limit p_rows);
  if found then
    return true;
  end if;

  select array_agg(l.id) into v_partitions
  from (
    select p.id from skep.partition p where p.queue_id = v_queue_id
    order by p.name limit greatest(p_rows / c_rows_per_partition, 1)
  ) l;
  if v_partitions is not null then
    perform skep.drop_partitions(v_partitions);
    return true;
  end if;
  delete from skep.removed_queue r where r.queue_id = v_queue_id;
  return p_queue_id is null;
end $$;

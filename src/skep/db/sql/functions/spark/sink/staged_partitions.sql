-- staged_partitions: lock the partitions of a write, creating missing ones.
-- Takes   p_write_id, p_epoch, p_attempt: the staging.
-- Returns per partition, by id; window_s: of duplicates.
-- Locks   as provision_partitions; then skep.partition rows for no key update, in id order.
-- Why     All partitions are locked before anything is stored, as in every push, so two writes
--         never deadlock. Partitions of rejected rows are created too: a dead letter has an
--         address.
create function skep.staged_partitions(p_write_id text, p_epoch bigint, p_attempt bigint[])
returns table (
  partition_id bigint, queue_id integer, queue text, partition text, window_s integer)
language plpgsql as $$
#variable_conflict use_column
declare
  v_queue text[];
  v_partition text[];
  v_id bigint[];
begin
  select array_agg(n.queue), array_agg(n.partition) into v_queue, v_partition
  from (
    select s.queue, s.partition from skep.staged_segment s
    where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
    union
    select m.queue, m.partition from skep.staged_message m
    where m.write_id = p_write_id and m.epoch = p_epoch and m.attempt = any(p_attempt)
    union
    select r.queue, r.partition from skep.staged_reject r
    where r.write_id = p_write_id and r.epoch = p_epoch and r.attempt = any(p_attempt)
  ) n;
  if v_queue is null then
    return;
  end if;

  select array_agg(p.partition_id order by p.partition_id) into v_id
  from skep.provision_partitions(v_queue, v_partition) p;
  return query
  select p.id, p.queue_id, q.name, p.name, q.dedup_window_s
  from unnest(v_id) i(id)
  cross join lateral (
    select p.id, p.queue_id, p.name from skep.partition p where p.id = i.id for no key update
  ) p
  cross join lateral (
    select q.name, q.dedup_window_s from skep.queue q where q.id = p.queue_id offset 0
  ) q;
end $$;

-- claim_due: choose the scheduled messages to sequence next and create missing partitions.
-- Takes   p_limit, p_bytes as sequence_due; p_now.
-- Returns their ids, null if none is due.
-- Locks   the chosen skep.scheduled rows for update, skipping locked ones; their skep.queue rows
--         for share, in id order; as provision_partitions for missing partitions.
-- Why     The first half of sequence_due. A partition removed while a message waited is created
--         again; a deleted queue is not, and its messages are dropped. The lock keeps a queue from
--         being deleted in between.
create function skep.claim_due(p_limit integer, p_bytes bigint, p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_ids bigint[];
  v_queue text[];
  v_partition text[];
begin
  with due as materialized (
    select s.id, s.deliver_at, octet_length(s.envelope) as bytes from skep.scheduled s
    where s.deliver_at <= p_now
    order by s.deliver_at, s.id limit p_limit
    for update skip locked
  )
  select array_agg(d.id) into v_ids
  from (
    select d.id, sum(d.bytes) over (order by d.deliver_at, d.id) - d.bytes as bytes_before
    from due d
  ) d
  where d.bytes_before < p_bytes;
  if v_ids is null then
    return null;
  end if;

  perform 1 from skep.queue q
  where q.id in (select s.queue_id from skep.scheduled s where s.id = any(v_ids))
  order by q.id for share;
  delete from skep.scheduled s
  where s.id = any(v_ids) and not exists (select from skep.queue q where q.id = s.queue_id);

  select array_agg(m.queue), array_agg(m.partition) into v_queue, v_partition
  from (
    select distinct q.name as queue, s.partition
    from skep.scheduled s join skep.queue q on q.id = s.queue_id
    where s.id = any(v_ids)
      and not exists (
        select from skep.partition p where p.queue_id = s.queue_id and p.name = s.partition)
  ) m;
  if v_queue is not null then
    perform skep.provision_partitions(v_queue, v_partition);
  end if;
  return v_ids;
end $$;

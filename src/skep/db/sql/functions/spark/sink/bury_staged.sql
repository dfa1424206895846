-- bury_staged: keep rows that a writer rejected as dead letters.
-- Takes   the staging, and partitions as staged_partitions returns them.
-- Returns how many.
-- Locks   none beyond the new rows; the caller holds the partitions.
-- Why     They belong to the default group, which every queue has: no group failed at the row. The
--         offset is one that no message has, so that the letter can be listed, redriven and deleted
--         like any other.
create function skep.bury_staged(
  p_write_id text, p_epoch bigint, p_attempt bigint[],
  p_partition_id bigint[], p_queue text[], p_partition text[], p_now timestamptz) returns bigint
language sql
set enable_hashjoin = on
as $$
  with buried as (
    insert into skep.dead_letter (
      partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
      created_at, failed_at)
    select r.id, r.group_id, r.queue_id, nextval('skep.reject_offset'), r.transaction_id,
           convert_from(r.envelope, 'UTF8')::json, r.error, 0, p_now, p_now
    from (
      select l.id, g.id as group_id, g.queue_id, r.transaction_id, r.envelope, r.error
      from skep.staged_reject r
      join unnest(p_partition_id, p_queue, p_partition) l(id, queue, partition)
        on l.queue = r.queue and l.partition = r.partition
      cross join lateral (select q.id from skep.queue q where q.name = r.queue offset 0) q
      cross join lateral (
        select g.id, g.queue_id from skep.consumer_group g
        where g.queue_id = q.id and g.name = '__QUEUE_MODE__' offset 0
      ) g
      where r.write_id = p_write_id and r.epoch = p_epoch and r.attempt = any(p_attempt)
      order by r.task, r.number
    ) r
    returning 1
  )
  select count(*) from buried;
$$;

-- schedule_staged: schedule messages that a Spark write staged for later.
-- Takes   p_write_id, p_epoch, p_attempt: the staging. p_now.
-- Returns one row: scheduled, and duplicates of messages that already wait.
-- Locks   none beyond the new rows, inserted in (queue, partition, key) order.
-- Why     As schedule_messages: ids are drawn in row order, rows inserted in key order. Duplicates
--         of stored messages are found when the message is sequenced.
create function skep.schedule_staged(
  p_write_id text, p_epoch bigint, p_attempt bigint[], p_now timestamptz)
returns table (scheduled bigint, duplicates bigint)
language sql
set enable_hashjoin = on
as $$
  with given as materialized (
    select nextval('skep.scheduled_id_seq') as id, m.*
    from (
      select q.id as queue_id, q.dedup_window_s, m.partition, m.key, m.transaction_id, m.envelope,
             m.deliver_at
      from skep.staged_message m
      cross join lateral (
        select q.id, q.dedup_window_s from skep.queue q where q.name = m.queue offset 0
      ) q
      where m.write_id = p_write_id and m.epoch = p_epoch and m.attempt = any(p_attempt)
      order by m.task, m.number
    ) m
  ),
  added as (
    insert into skep.scheduled (
      id, queue_id, partition, key, nonce, transaction_id, envelope, deliver_at, created_at)
    overriding system value
    select g.id, g.queue_id, g.partition, g.key, case when g.dedup_window_s = 0 then g.id else 0 end,
           g.transaction_id, g.envelope, g.deliver_at, p_now
    from given g
    order by g.queue_id, g.partition, g.key, g.id
    on conflict (queue_id, partition, key, nonce) do nothing
    returning 1
  )
  select (select count(*) from added), (select count(*) from given) - (select count(*) from added);
$$;

-- bury_unreadable: keep messages whose payload a reader could not use as dead letters.
-- Takes   p_messages: json array of objects with partition_id, queue, at (the offset),
--         transaction_id, error, created_at, and envelope: its text, null for a message of the log.
-- Returns how many; one that is a letter already, or has left the log since, is left out.
-- Locks   none beyond the new rows.
-- Why     They belong to the default group, which every queue has: a reader is no group. A reader
--         may read a message again, so the address decides. A message of the log is copied as it is
--         stored: an encrypted one stays so. One of the archive comes with its envelope.
create function skep.bury_unreadable(p_messages json) returns bigint
language sql as $$
  with buried as (
    insert into skep.dead_letter (
      partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
      created_at, failed_at)
    select m.partition_id, g.id, g.queue_id, m.at, m.transaction_id,
           coalesce(m.envelope::json, s.envelope), m.error, 0, m.created_at, skep.now()
    from json_to_recordset(p_messages) m(
      partition_id bigint, queue text, at bigint, transaction_id text, envelope text, error text,
      created_at timestamptz)
    join skep.queue q on q.name = m.queue
    join skep.consumer_group g on g.queue_id = q.id and g.name = '__QUEUE_MODE__'
    left join lateral (
      select convert_from(f.body, 'UTF8')::json -> (m.at - f.first)::integer as envelope
      from (
        select s.first, s.last, s.body from skep.segment s
        where m.envelope is null and s.partition_id = m.partition_id and s.first <= m.at
        order by s.first desc limit 1
      ) f
      where f.last >= m.at
    ) s on true
    where coalesce(m.envelope::json, s.envelope) is not null
    order by m.partition_id, m.at
    on conflict (partition_id, group_id, message_offset) do nothing
    returning 1
  )
  select count(*) from buried;
$$;

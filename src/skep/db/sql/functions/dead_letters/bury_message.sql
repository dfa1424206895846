-- bury_message: keep a message that a group gave up on as a dead letter.
-- Locks   none beyond the new row; the caller holds the cursor.
-- Why     The envelope is copied, so the dead letter outlives retention. Burying a message twice
--         keeps the first row. The payload is never decoded: -> and ->> decode every string they
--         pass and fail on an escaped NUL, so the transaction id is read from the head of the
--         envelope, before its data.
create function skep.bury_message(
  p_partition_id bigint, p_group_id integer, p_queue_id integer, p_offset bigint, p_error text,
  p_failures integer, p_now timestamptz) returns void
language sql as $$
  insert into skep.dead_letter (
    partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
    created_at, failed_at)
  select p_partition_id, p_group_id, p_queue_id, p_offset,
         (split_part(m.envelope::text, ',"data":', 1) || '}')::json ->> 'transactionId',
         m.envelope, p_error, p_failures, s.created_at, p_now
  from (
    select s.first, s.created_at, s.body from skep.segment s
    where s.partition_id = p_partition_id and s.first <= p_offset
    order by s.first desc limit 1
  ) s
  cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
    with ordinality m(envelope, position)
  where m.position = p_offset - s.first + 1 and json_typeof(m.envelope) = 'object'
  on conflict (partition_id, group_id, message_offset) do nothing;
$$;

-- bury_range: keep the messages of a range that a group gave up on as dead letters.
-- Takes   p_partition_id, p_group_id: the cursor. p_from, p_to: the range (p_from, p_to]. p_error,
--         p_now. p_failures: null for those recorded in the cursor.
-- Returns how many; deleted and finished messages are left out.
-- Locks   none beyond the new rows; the caller holds the cursor.
-- Why     The envelope is copied, so the dead letter outlives retention. Burying a message twice
--         keeps the first row. The payload is never decoded: -> and ->> decode every string they
--         pass and fail on an escaped NUL, so the transaction id is read from the head of the
--         envelope, before its data.
create function skep.bury_range(
  p_partition_id bigint, p_group_id integer, p_from bigint, p_to bigint, p_error text,
  p_now timestamptz, p_failures integer default null) returns bigint
language sql as $$
  with buried as (
    insert into skep.dead_letter (
      partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
      created_at, failed_at)
    select p_partition_id, p_group_id, c.queue_id, m.at,
           (split_part(m.envelope::text, ',"data":', 1) || '}')::json ->> 'transactionId',
           m.envelope, p_error,
           coalesce(p_failures, c.failed_count[array_position(c.failed_offset, m.at)], 0),
           m.created_at, p_now
    from skep.cursor c
    cross join lateral (
      select s.first + e.position - 1 as at, e.envelope, s.created_at
      from (
        select s.first, s.created_at, s.body from skep.segment s
        where s.partition_id = p_partition_id and s.first <= p_to
          and s.first >= coalesce(
            (select b.first from skep.segment b
             where b.partition_id = p_partition_id and b.first <= p_from + 1
             order by b.first desc limit 1), p_from + 1)
        offset 0
      ) s
      cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
        with ordinality e(envelope, position)
      where json_typeof(e.envelope) = 'object'
    ) m
    where c.partition_id = p_partition_id and c.group_id = p_group_id
      and m.at > p_from and m.at <= p_to and not coalesce(c.done @> m.at, false)
    on conflict (partition_id, group_id, message_offset) do nothing
    returning 1
  )
  select count(*) from buried;
$$;

-- bury_messages: keep messages that a group gave up on as dead letters.
-- Takes   per message, in parallel arrays; p_failures: null for those recorded in the cursor.
-- Returns how many; deleted and finished messages are left out.
-- Locks   none beyond the new rows; the caller holds the cursor.
-- Why     The envelope is copied, so the dead letter outlives retention. Burying a message twice
--         keeps the first row. Each segment is parsed once, however many of its messages are
--         buried. The payload is never decoded: -> and ->> decode every string they pass and fail
--         on an escaped NUL, so the transaction id is read from the head of the envelope, before
--         its data.
create function skep.bury_messages(
  p_partition_id bigint, p_group_id integer, p_offset bigint[], p_error text[],
  p_failures integer[], p_now timestamptz) returns bigint
language plpgsql as $$
declare
  v_cursor skep.cursor;
  v_segment record;
  v_created_at timestamptz;
  v_envelope json[];                 -- of the segment, by position
  v_count bigint;
  v_buried bigint := 0;
begin
  select * into v_cursor from skep.cursor c
  where c.partition_id = p_partition_id and c.group_id = p_group_id;
  for v_segment in
    select s.first, array_agg(u.at) as offsets, array_agg(u.error) as errors,
           array_agg(u.failures) as failures
    from unnest(p_offset, p_error, p_failures) u(at, error, failures)
    cross join lateral (
      select s.first, s.last from skep.segment s
      where s.partition_id = p_partition_id and s.first <= u.at
      order by s.first desc limit 1
    ) s
    where s.last >= u.at and not coalesce(v_cursor.done @> u.at, false)
    group by s.first
    order by s.first
  loop
    select s.created_at, e.envelopes into v_created_at, v_envelope
    from skep.segment s
    cross join lateral (
      select array_agg(e.envelope order by e.position) as envelopes
      from json_array_elements(convert_from(s.body, 'UTF8')::json)
        with ordinality e(envelope, position)
    ) e
    where s.partition_id = p_partition_id and s.first = v_segment.first;

    insert into skep.dead_letter (
      partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
      created_at, failed_at)
    select p_partition_id, p_group_id, v_cursor.queue_id, m.at,
           (split_part(m.envelope::text, ',"data":', 1) || '}')::json ->> 'transactionId',
           m.envelope, m.error,
           coalesce(m.failures,
                    v_cursor.failed_count[array_position(v_cursor.failed_offset, m.at)], 0),
           v_created_at, p_now
    from (
      select u.at, u.error, u.failures, v_envelope[u.at - v_segment.first + 1] as envelope
      from unnest(v_segment.offsets, v_segment.errors, v_segment.failures) u(at, error, failures)
      offset 0
    ) m
    where json_typeof(m.envelope) = 'object'
    order by m.at
    on conflict (partition_id, group_id, message_offset) do nothing;
    get diagnostics v_count = row_count;
    v_buried := v_buried + v_count;
  end loop;
  return v_buried;
end $$;

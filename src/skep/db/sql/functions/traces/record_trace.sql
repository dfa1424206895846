-- record_trace: record an event of a message.
-- Takes   p_offset: null to find the message by p_key. p_names: ascending, no name twice.
-- Returns the id of the trace, null if there is no such message.
-- Locks   skep.trace_name_total rows in name order.
-- Why     Totals are locked before counting, so two traces of one message under a new name count it
--         once. The transaction id is cut from the head of the envelope: headers and payload may
--         hold escapes that json functions refuse.
create function skep.record_trace(
  p_partition_id bigint, p_offset bigint, p_key bytea, p_event_type text, p_data text,
  p_consumer_group text, p_worker_id text, p_names text[]) returns bigint
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_offset constant bigint := coalesce(
    p_offset, skep.find_traced_message(p_partition_id, p_key));
  v_envelope constant text := skep.read_envelope(p_partition_id, v_offset);
  v_id bigint;
begin
  if v_envelope is null then
    return null;
  end if;

  insert into skep.trace_name_total as t (name, trace_count, message_count, last_seen)
  select n.name, 1, 0, v_now from unnest(p_names) with ordinality n(name, place) order by n.place
  on conflict (name) do update
  set trace_count = t.trace_count + 1, last_seen = greatest(t.last_seen, excluded.last_seen);

  update skep.trace_name_total t
  set message_count = t.message_count + 1
  where t.name = any(p_names)
    and not exists (
      select from skep.trace_name n
      where n.name = t.name and n.partition_id = p_partition_id and n.message_offset = v_offset);

  insert into skep.trace (
    partition_id, message_offset, transaction_id, event_type, data, consumer_group, worker_id,
    names, created_at)
  values (
    p_partition_id, v_offset,
    (split_part(v_envelope, ',"traceId":', 1) || '}')::json ->> 'transactionId',
    p_event_type, p_data, p_consumer_group, p_worker_id, p_names, v_now)
  returning id into v_id;

  insert into skep.trace_name (name, trace_id, partition_id, message_offset)
  select n, v_id, p_partition_id, v_offset from unnest(p_names) n;
  return v_id;
end $$;

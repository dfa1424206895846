-- list_message_traces: traces of one message, oldest first.
-- Takes   p_transaction_id, or p_message_offset with the other null.
-- Returns by id.
-- Why     Found by the transaction id stored with the trace, so it works after retention. For an
--         offset the transaction id comes from the log.
create function skep.list_message_traces(
  p_partition_id bigint, p_transaction_id text, p_message_offset bigint, p_limit integer,
  p_skip bigint)
returns table (
  id bigint, event_type text, data text, consumer_group text, worker_id text,
  created_at timestamptz, names text[])
language sql stable as $$
  select t.id, t.event_type, t.data, t.consumer_group, t.worker_id, t.created_at, t.names
  from skep.trace t
  where t.partition_id = p_partition_id
    and t.transaction_id = coalesce(
      p_transaction_id,
      (split_part(skep.read_envelope(p_partition_id, p_message_offset), ',"traceId":', 1)
       || '}')::json ->> 'transactionId')
    and t.message_offset = coalesce(p_message_offset, t.message_offset)
  order by t.id
  limit p_limit offset p_skip;
$$;

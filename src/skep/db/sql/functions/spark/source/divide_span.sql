/*
divide_span: cut a span into portions for parallel tasks, as far as a limit allows.

Takes   the span as segments_in_span, of any number of queues. p_messages, p_bytes: how much of it at most, null for all;
        the first segment always fits, and very
        small ones may make it a little less. p_share: messages per portion, null for a single portion.
Returns one row per portion in the order of addresses: last, the address (xid, partition, first)
        of its last segment; segments, messages and bytes in it.
Locks   none.
Why     Planning must not depend on the number of partitions, and a portion must be as small to describe
        as it is large to read: an address at either end. Nor may it depend on the backlog: a
        micro-batch of so many messages has at most so many segments, and the index of each queue
        gives its first ones in order. The planner, which takes snapshots to be choosier than they
        are, would rather sort; hence it is told not to.
*/
create function skep.divide_span(
  p_queue_id integer[], p_partition_id bigint[], p_seen pg_snapshot, p_upto pg_snapshot,
  p_after bigint[], p_through bigint[], p_since timestamptz, p_until timestamptz,
  p_messages bigint, p_bytes bigint, p_share bigint)
returns table (last bigint[], segments bigint, messages bigint, bytes bigint)
language plpgsql stable set enable_sort = off as $$
#variable_conflict use_column
declare
  v_bytes_min constant integer := 60;  -- no message is smaller, unless it was deleted
  v_segment record;
  v_messages bigint := 0;   -- of all portions so far
  v_bytes bigint := 0;
begin
  segments := 0;
  messages := 0;
  bytes := 0;
  for v_segment in
    select array[s.xid::text::bigint, s.partition_id, s.first] as address,
           s.last - s.first + 1 as messages, s.bytes
    from unnest(p_queue_id) i(id)
    cross join lateral (
      select s.xid, s.partition_id, s.first, s.last, octet_length(s.body) as bytes
      from skep.segments_in_span(
        i.id, p_partition_id, p_seen, p_upto, p_after, p_through, p_since, p_until) s
      order by s.xid, s.partition_id, s.first
      limit least(p_messages, p_bytes / v_bytes_min) + 1
    ) s
    order by s.xid, s.partition_id, s.first
  loop
    exit when v_messages > 0
      and (v_messages + v_segment.messages > p_messages or v_bytes + v_segment.bytes > p_bytes);
    if segments > 0 and messages + v_segment.messages > p_share then
      return next;
      segments := 0;
      messages := 0;
      bytes := 0;
    end if;
    last := v_segment.address;
    segments := segments + 1;
    messages := messages + v_segment.messages;
    bytes := bytes + v_segment.bytes;
    v_messages := v_messages + v_segment.messages;
    v_bytes := v_bytes + v_segment.bytes;
  end loop;
  if segments > 0 then
    return next;
  end if;
end $$;

-- divide_span: cut a span into shares for parallel tasks, up to a limit.
-- Takes   the span as segments_in_span, of any number of queues. p_messages, p_bytes: how much of
--         it, null for all; at least one segment, and tiny messages may make it a little less.
--         p_share: messages per share, null for a single one.
-- Returns per share in address order; last: the address (xid, partition, first) of its last
--         segment.
-- Why     Planning must depend neither on the number of partitions nor on the backlog, and a share
--         must be small to describe: an address at either end. A micro-batch of n messages has at
--         most n segments, and the index of each queue gives its first ones in order. The planner
--         underestimates snapshots and would rather sort, so sorting is disabled. Not for single
--         partitions: there the planner chooses between what is new in the queue and all that is
--         in the partitions, for which it has to know the arguments.
create function skep.divide_span(
  p_queue_id integer[], p_partition_id bigint[], p_seen pg_snapshot, p_upto pg_snapshot,
  p_after bigint[], p_through bigint[], p_since timestamptz, p_until timestamptz,
  p_messages bigint, p_bytes bigint, p_share bigint)
returns table (last bigint[], segments bigint, messages bigint, bytes bigint)
language plpgsql stable set enable_sort = off set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  v_bytes_min constant integer := 60;  -- no message is smaller, unless it was deleted
  v_segment record;
  v_messages bigint := 0;   -- of all shares so far
  v_bytes bigint := 0;
begin
  perform set_config('enable_sort', (p_partition_id is not null)::text, true);
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

-- walk_segments: segments of one or several queues, newest first, a bounded number at a time.
-- Takes   p_queue to p_key: null for any; p_from, p_to: when they were pushed, p_from null for an
--         hour ago; p_after_*: the segment to continue behind, or nulls; p_segments_max,
--         p_messages_max: when to stop.
-- Returns every segment looked at. Those not is_wanted are returned as places to continue behind,
--         and so is a queue without segments (xid 0).
-- Why     There is no index by time. Queues are walked youngest first, and each in the order of
--         transactions, which is the order of time except for the length of a transaction, so the
--         walk ends ten minutes before p_from. A call is bounded whatever the filter: an empty
--         queue counts as a segment, and bodies are not read.
create function skep.walk_segments(
  p_queue text, p_partition text, p_namespace text, p_task text, p_key bytea,
  p_from timestamptz, p_to timestamptz, p_after_queue integer, p_after_xid text,
  p_after_partition bigint, p_after_first bigint, p_segments_max integer, p_messages_max bigint)
returns table (
  queue_id integer, xid text, partition_id bigint, first bigint, last bigint, is_wanted boolean)
language plpgsql stable
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_from constant timestamptz := coalesce(p_from, skep.now() - interval '1 hour');
  v_segments integer := p_segments_max;
  v_messages bigint := p_messages_max;
  v_queue_id integer;
  v_named_id bigint;
  v_xid xid8;
  v_partition_id bigint;
  v_first bigint;
  v_created_at timestamptz;
begin
  for v_queue_id in
    select q.id from skep.queue q
    where (p_queue is null or q.name = p_queue)
      and (p_namespace is null or q.namespace = p_namespace)
      and (p_task is null or q.task = p_task)
      and (p_after_queue is null or q.id < p_after_queue
           or (q.id = p_after_queue and p_after_xid <> '0'))
    order by q.id desc
  loop
    v_xid := '18446744073709551615';
    v_partition_id := 9223372036854775807;
    v_first := 9223372036854775807;
    if v_queue_id = p_after_queue then
      v_xid := p_after_xid::xid8;
      v_partition_id := p_after_partition;
      v_first := p_after_first;
    end if;
    if p_partition is not null then
      select p.id into v_named_id from skep.partition p
      where p.queue_id = v_queue_id and p.name = p_partition;
      continue when not found;
    end if;

    for xid, partition_id, first, last, v_created_at, is_wanted in
      (select s.xid::text, s.partition_id, s.first, s.last, s.created_at,
              s.created_at between v_from and p_to
                and (p_key is null or position(p_key in s.keys) > 0) as is_wanted
       from skep.segment s
       where p_partition is null and s.queue_id = v_queue_id and s.xid <= v_xid
         and (s.xid, s.partition_id, s.first) < (v_xid, v_partition_id, v_first)
       order by s.xid desc, s.partition_id desc, s.first desc limit v_segments)
      union all
      (select s.xid::text, s.partition_id, s.first, s.last, s.created_at,
              s.created_at between v_from and p_to
                and (p_key is null or position(p_key in s.keys) > 0)
       from skep.segment s
       where p_partition is not null and s.partition_id = v_named_id and s.first < v_first
       order by s.first desc limit v_segments)
    loop
      exit when v_created_at < v_from - interval '10 minutes';
      queue_id := v_queue_id;
      return next;
      v_segments := v_segments - 1;
      if is_wanted then
        v_messages := v_messages - (last - first + 1);
      end if;
      if v_segments <= 0 or v_messages <= 0 then
        return;
      end if;
    end loop;

    if queue_id is distinct from v_queue_id then
      return query select v_queue_id, '0', 0::bigint, 0::bigint, -1::bigint, false;
      v_segments := v_segments - 1;
      exit when v_segments <= 0;
    end if;
  end loop;
end $$;

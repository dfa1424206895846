-- walk_segments: segments of one or several queues, newest first, a bounded number at a time.
-- Takes   p_queue to p_key: null for any; p_from, p_to: when they were pushed, p_from null for an
--         hour ago; p_after_*: the segment to continue behind, or nulls; p_segments_max,
--         p_messages_max, p_bytes_max: when to stop.
-- Returns every segment looked at. Those not is_wanted are returned as places to continue behind.
-- Why     There is no index by time, and none of all queues: each queue is read in the order of
--         transactions, which is the order of time except for the length of a transaction, so the
--         walk ends ten minutes before p_from. Queues are merged 64 at a time: those whose next
--         segments are the newest are read down to the oldest of these 64, then the next ones.
--         A call is bounded whatever the filter and the backlog: a probe of the index per queue, and
--         per merge one for each queue that can still contribute. Bodies are not read.
create function skep.walk_segments(
  p_queue text, p_partition text, p_namespace text, p_task text, p_key bytea,
  p_from timestamptz, p_to timestamptz, p_after_xid text, p_after_partition bigint,
  p_after_first bigint, p_segments_max integer, p_messages_max bigint, p_bytes_max bigint)
returns table (
  xid text, partition_id bigint, first bigint, last bigint, created_at timestamptz,
  is_wanted boolean, size integer)
language plpgsql stable
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_from constant timestamptz := coalesce(p_from, skep.now() - interval '1 hour');
  v_oldest constant timestamptz := v_from - interval '10 minutes';
  v_segments integer := p_segments_max;
  v_messages bigint := p_messages_max;
  v_bytes bigint := p_bytes_max;
  v_queue_id integer[];
  v_named_id bigint;
  v_xid xid8 := coalesce(p_after_xid, '18446744073709551615')::xid8;
  v_partition_id bigint := coalesce(p_after_partition, 9223372036854775807);
  v_first bigint := coalesce(p_after_first, 9223372036854775807);
  v_down_to xid8;
  v_limit integer;
  v_read integer;
begin
  if p_partition is not null then
    select p.id into v_named_id
    from skep.queue q join skep.partition p on p.queue_id = q.id and p.name = p_partition
    where q.name = p_queue;
  else
    -- A queue begins with its newest segment: no more of them can contribute than there are segments.
    v_queue_id := array(
      select q.id
      from skep.queue q
      cross join lateral (
        select s.xid, s.created_at from skep.segment s
        where s.queue_id = q.id and s.xid <= v_xid
          and (s.xid, s.partition_id, s.first) < (v_xid, v_partition_id, v_first)
        order by s.xid desc limit 1
      ) s
      where (p_queue is null or q.name = p_queue)
        and (p_namespace is null or q.namespace = p_namespace)
        and (p_task is null or q.task = p_task)
        and s.created_at >= v_oldest
      order by s.xid desc fetch first p_segments_max rows with ties);
  end if;

  loop
    select case when count(*) = 64 then min(h.xid) else '0' end into v_down_to
    from (
      select s.xid
      from unnest(v_queue_id) q(id)
      cross join lateral (
        select s.xid from skep.segment s
        where s.queue_id = q.id and s.xid <= v_xid
          and (s.xid, s.partition_id, s.first) < (v_xid, v_partition_id, v_first)
        order by s.xid desc limit 1
      ) s
      order by s.xid desc limit 64
    ) h;
    v_limit := least(v_segments, greatest(v_messages, 64));
    v_read := 0;

    for xid, partition_id, first, last, created_at, is_wanted, size in
      select s.xid::text, s.partition_id, s.first, s.last, s.created_at,
             s.created_at between v_from and p_to
               and (p_key is null or exists (
                 select from skep.segment k
                 where k.partition_id = s.partition_id and k.first = s.first
                   and position(p_key in k.keys) > 0)),
             s.size
      from (
        (select s.*
         from unnest(v_queue_id) q(id)
         cross join lateral (
           select s.xid, s.partition_id, s.first, s.last, s.created_at,
                  octet_length(s.body) as size
           from skep.segment s
           where s.queue_id = q.id and s.xid between v_down_to and v_xid
             and (s.xid, s.partition_id, s.first) < (v_xid, v_partition_id, v_first)
           order by s.xid desc, s.partition_id desc, s.first desc limit v_limit
         ) s
         order by s.xid desc, s.partition_id desc, s.first desc limit v_limit)
        union all
        (select s.xid, s.partition_id, s.first, s.last, s.created_at, octet_length(s.body)
         from skep.segment s
         where s.partition_id = v_named_id and s.first < v_first
         order by s.first desc limit v_limit)
      ) s
      order by case when v_named_id is null then s.xid end desc, s.partition_id desc, s.first desc
    loop
      if created_at < v_oldest then
        return;
      end if;
      return next;
      v_read := v_read + 1;
      v_segments := v_segments - 1;
      if is_wanted then
        v_messages := v_messages - (last - first + 1);
        v_bytes := v_bytes - size;
      end if;
      if v_segments <= 0 or v_messages <= 0 or v_bytes <= 0 then
        return;
      end if;
      v_xid := xid::xid8;
      v_partition_id := partition_id;
      v_first := first;
    end loop;

    if v_read < v_limit then
      exit when v_down_to = '0';
      v_xid := v_down_to;
      v_partition_id := 0;
      v_first := 0;
    end if;
  end loop;
end $$;

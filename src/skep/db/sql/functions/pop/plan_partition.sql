-- plan_partition: what a poll may take from a partition with delivery rules.
-- Takes   p_acked, p_done, p_unanswered: its cursor, acked at least tail - 1.
-- Returns acked and done as they must become; upto and count: the range to take and the number of
--         messages in it (0: take nothing); rest_until: when there may be something if there is
--         nothing now (null: unknown, perhaps a push); is_buried: a message became a dead letter.
-- Locks   none; the caller holds the cursor.
-- Why     Separate, so that partitions without rules pay nothing. Messages are skipped if older
--         than the queue's ttl or the cursor's start, which is looked up only if the group may have
--         one; held back while the window since the newest is open, or while younger than the
--         delay; buried after too many deliveries. A conflating group ignores deliveries: a message
--         that kills its consumer is replaced by the next push.
create function skep.plan_partition(
  p_group skep.consumer_group, p_queue skep.queue, p_partition_id bigint, p_acked bigint,
  p_done int8multirange, p_unanswered integer, p_head bigint, p_pushed_at timestamptz,
  p_batch integer, p_now timestamptz)
returns table (
  acked bigint, done int8multirange, upto bigint, count integer, rest_until timestamptz,
  is_buried boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_last bigint := p_head;
  v_is_conflated constant boolean := coalesce(p_group.conflation, false);
  v_delay constant interval := make_interval(secs => p_queue.delayed_processing_s);
  v_window_ends constant timestamptz :=
    p_pushed_at + make_interval(secs => p_queue.window_buffer_s);
  v_since constant timestamptz := greatest(
    case when p_queue.ttl_s > 0 then p_now - make_interval(secs => p_queue.ttl_s) end,
    case when p_group.subscribed_from > p_group.created_at then (
      select c.starts_at from skep.cursor c
      where c.partition_id = p_partition_id and c.group_id = p_group.id) end);
begin
  acked := p_acked;
  is_buried := false;
  if v_since is not null then
    acked := skep.offset_before(p_partition_id, v_since, p_acked, p_head);
  end if;
  select d.acked, d.done into acked, done from skep.pass_done(acked, p_done) d;
  if p_queue.max_deliveries > 0 and p_unanswered >= p_queue.max_deliveries
     and acked = p_acked and acked < p_head and not v_is_conflated then
    is_buried := p_queue.dead_letter_queue or p_queue.dlq_after_max_retries;
    if is_buried then
      perform skep.bury_messages(
        p_partition_id, p_group.id, array[acked + 1],
        array[format('%s deliveries without an answer', p_unanswered)], null, p_now);
    end if;
    select d.acked, d.done into acked, done from skep.pass_done(acked + 1, done) d;
  end if;

  upto := acked;
  count := 0;
  if acked >= p_head then
    return next;
    return;
  elsif p_queue.window_buffer_s > 0 and v_window_ends > p_now then
    rest_until := v_window_ends;
    return next;
    return;
  elsif p_queue.delayed_processing_s > 0 then
    v_last := skep.offset_before(
      p_partition_id, p_now - v_delay + interval '1 microsecond', acked, p_head);
    if v_last <= acked then
      select s.created_at + v_delay into rest_until from skep.segment s
      where s.partition_id = p_partition_id and s.first <= acked + 1
      order by s.first desc limit 1;
      return next;
      return;
    end if;
  end if;

  if v_is_conflated then
    -- The newest that is not done; there is one, because acked + 1 never is.
    select coalesce(max(lower(r) - 1), v_last), 1 into upto, count
    from unnest(done) r where r @> v_last;
  else
    select r.upto, r.count into upto, count
    from skep.undone_range(acked, done, p_batch, v_last) r;
  end if;
  return next;
end $$;

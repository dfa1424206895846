-- evict_waiting: bury messages that waited too long for a group, or skip them where the queue keeps
-- no dead letters. One step of a run.
-- Takes   p_service to p_queue_id: as apply_retention. p_group_id, p_after_at, p_after_id: where
--         the last step stopped (0, 'epoch', 0 at first). p_until: when the run began. p_limit:
--         messages.
-- Returns one row, none if the queue is gone or paused; group_id, after_at, after_id: where this
--         step stopped; letters: how many became dead letters.
-- Raises  SK423 as assert_leadership.
-- Locks   ready skep.cursor rows of a group, skipping locked ones; as pass_cursors; the history
--         row.
-- Why     A message waits for each group separately, from when it may be delivered or from the
--         group's first poll, whichever is later: a group that keeps up loses nothing, nor does one
--         that just subscribed to everything. Where no consumer ever polled, it waits for the
--         default group (counts_as_reader). Leased messages, partitions that back off, messages
--         before the start of a subscription and conflating groups do not count as waiting. Only
--         ready partitions are visited.
create function skep.evict_waiting(
  p_service text, p_holder uuid, p_run_id uuid, p_queue_id integer, p_group_id integer,
  p_after_at timestamptz, p_after_id bigint, p_until timestamptz, p_limit integer)
returns table (
  messages bigint, partitions bigint, group_id integer, after_at timestamptz, after_id bigint,
  is_done boolean, queue_name text, letters bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_started constant timestamptz := skep.now();
  v_partitions constant integer := 500;      -- partitions to look at
  v_cutoff timestamptz;
  v_keeps boolean;                      -- the queue keeps dead letters
  v_group_id integer;
  v_partition record;
  v_seen integer := 0;
  v_to bigint;
  v_waiting bigint[];
begin
  perform skep.assert_leadership(p_service, p_holder);
  select v_started - make_interval(
           secs => nullif(q.max_wait_time_s, 0)
                   + greatest(q.delayed_processing_s, q.window_buffer_s)),
         q.dead_letter_queue or q.dlq_after_max_retries, q.name
  into v_cutoff, v_keeps, queue_name
  from skep.queue q where q.id = p_queue_id and not q.is_paused;
  if not found then
    return;
  end if;
  messages := 0; letters := 0; partitions := 0; after_at := p_after_at; after_id := p_after_id;
  select g.id into v_group_id from skep.consumer_group g
  where g.queue_id = p_queue_id and g.id >= p_group_id
    and coalesce(g.first_polled_at, '-infinity') < v_cutoff and skep.counts_as_reader(g)
    and not g.is_paused and g.conflation is not true
  order by g.id limit 1;
  group_id := coalesce(v_group_id, p_group_id);
  is_done := v_group_id is null;
  if is_done then
    return next;
    return;
  elsif v_group_id > p_group_id then
    after_at := 'epoch'; after_id := 0;
  end if;

  for v_partition in
    select c.partition_id as id, c.available_at, p.acked,
           skep.offset_before(c.partition_id, v_cutoff, p.acked, p.head) as last
    from skep.cursor c
    cross join lateral (
      select p.head,
             case when c.starts_at is null then greatest(c.acked, p.tail - 1)
                  else skep.offset_before(p.id, c.starts_at, greatest(c.acked, p.tail - 1), p.head)
             end as acked
      from skep.partition p where p.id = c.partition_id offset 0
    ) p
    where c.group_id = v_group_id and c.available_at >= after_at and c.available_at <= p_until
      and (c.available_at, c.partition_id) > (after_at, after_id)
    order by c.available_at, c.partition_id
    limit v_partitions
    for no key update of c skip locked
  loop
    v_seen := v_seen + 1;
    after_at := v_partition.available_at;
    after_id := v_partition.id;
    continue when v_partition.last <= v_partition.acked;
    v_to := least(v_partition.last, v_partition.acked + p_limit - messages);
    if v_keeps then
      v_waiting := array(select generate_series(v_partition.acked + 1, v_to));
      messages := messages + skep.bury_messages(
        v_partition.id, v_group_id, v_waiting,
        array_fill('Waited too long'::text, array[cardinality(v_waiting)]), null, v_started);
    else
      messages := messages + v_to - v_partition.acked;
    end if;
    perform skep.pass_cursors(v_partition.id, array[v_group_id], 1, v_to, v_started);
    partitions := partitions + 1;
    if v_to < v_partition.last or messages >= p_limit then
      after_id := after_id - 1;         -- there may be more in this partition
      exit;
    end if;
  end loop;

  if v_keeps then
    letters := messages;
  end if;
  if messages > 0 then
    perform skep.record_removal(
      p_run_id, p_queue_id, 'eviction', messages, 0, partitions, v_started);
  end if;
  if v_seen = 0 then
    group_id := group_id + 1; after_at := 'epoch'; after_id := 0;
  end if;
  return next;
end $$;

-- provision_group: find a consumer group, or subscribe it.
-- Takes   p_mode: all, new or timestamp. p_from: the start of a timestamp subscription. Mode and
--         start only apply to a new group. p_conflation: deliver only the newest message of each
--         partition; applies until it was decided once, null decides nothing. p_create: whether a
--         queue that does not exist is created.
-- Returns the ids, and the conflation in force; nothing if the queue is not there.
-- Locks   an existing group: nothing, or its own row when conflation is decided or the default
--         group is polled for the first time. A new group: its skep.queue row for update, against
--         provision_partitions and other new groups.
-- Why     The subscription exists from the first poll on, before any message, so mode new never
--         skips the first. A new cursor is ready, not idle: a push in flight may have looked for
--         idle cursors before it existed, and only a claim can tell, under the partition's lock,
--         that there is nothing to read. Deleted messages are done from the start.
create function skep.provision_group(
  p_queue text, p_group text, p_mode text, p_from timestamptz, p_conflation boolean default null,
  p_create boolean default true)
returns table (queue_id integer, group_id integer, conflation boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_queue_id integer;
  v_group_id integer;
  v_conflation boolean;
  v_first_polled_at timestamptz;
begin
  select g.queue_id, g.id, g.conflation, g.first_polled_at
  into v_queue_id, v_group_id, v_conflation, v_first_polled_at
  from skep.queue q join skep.consumer_group g on g.queue_id = q.id and g.name = p_group
  where q.name = p_queue;
  if found then
    if v_conflation is null and p_conflation is not null then
      -- Of two concurrent decisions the first counts.
      update skep.consumer_group g set conflation = coalesce(g.conflation, p_conflation)
      where g.id = v_group_id returning g.conflation into v_conflation;
    end if;
    if v_first_polled_at is null then
      -- From now on retention waits for this group.
      update skep.consumer_group g set first_polled_at = skep.now() where g.id = v_group_id;
    end if;
    return query select v_queue_id, v_group_id, v_conflation;
    return;
  end if;

  if p_create then
    v_queue_id := skep.ensure_queue(p_queue);
  else
    select q.id into v_queue_id from skep.queue q where q.name = p_queue;
    if not found then
      return;
    end if;
  end if;
  perform 1 from skep.queue q where q.id = v_queue_id for update;
  insert into skep.consumer_group (
    queue_id, name, subscription_mode, subscribed_from, conflation, created_at, first_polled_at)
  values (v_queue_id, p_group, p_mode, p_from, p_conflation, skep.now(), skep.now())
  on conflict (queue_id, name) do nothing
  returning id into v_group_id;
  if v_group_id is null then
    -- Another session subscribed it while this waited for the queue.
    return query
    select * from skep.provision_group(p_queue, p_group, p_mode, p_from, p_conflation, p_create);
    return;
  end if;

  insert into skep.cursor (partition_id, group_id, queue_id, acked, done, available_at, starts_at)
  select p.id, v_group_id, v_queue_id, d.acked, d.done, skep.now(),
         case when p_from > skep.now() then p_from end
  from skep.partition p
  cross join lateral (
    select case p_mode
             when 'new' then p.head
             when 'timestamp' then skep.offset_before(p.id, p_from)
             else p.tail - 1
           end as acked
    offset 0
  ) s
  cross join lateral skep.pass_done(
    s.acked,
    (select range_agg(int8range(d.message_offset, d.message_offset + 1))
     from skep.deleted_message d where d.partition_id = p.id and d.message_offset > s.acked)
  ) d
  where p.queue_id = v_queue_id;

  return query select v_queue_id, v_group_id, p_conflation;
end $$;

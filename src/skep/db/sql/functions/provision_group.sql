/*
provision_group: find a consumer group of a queue, or subscribe it.

Takes   p_queue, p_group: names. p_mode: 'all', 'new' or 'timestamp'. p_from: where a 'timestamp'
        subscription starts. Mode and start count only when the group is new.
Returns queue_id, group_id.
Locks   an existing group: nothing, its row at the first poll of queue mode. A new one: its queue row for update, against
        provision_partitions and other new groups of the queue.
Why     The subscription exists from the first poll on, before any message does, so that 'new'
        never skips the first one. Every new cursor starts ready, not idle: a push in flight may
        have looked for idle cursors before this one existed, and only a claim may find out
        (under the partition's lock) that there is nothing to read.
*/
create function skep.provision_group(p_queue text, p_group text, p_mode text, p_from timestamptz)
returns table (queue_id integer, group_id integer)
language plpgsql as $$
#variable_conflict use_column
declare
  v_queue_id integer;
  v_group_id integer;
  v_first_polled_at timestamptz;
begin
  select g.queue_id, g.id, g.first_polled_at into v_queue_id, v_group_id, v_first_polled_at
  from skep.queue q join skep.consumer_group g on g.queue_id = q.id and g.name = p_group
  where q.name = p_queue;
  if found then
    if v_first_polled_at is null then
      -- From now on retention waits for this group, too.
      update skep.consumer_group g set first_polled_at = skep.now() where g.id = v_group_id;
    end if;
    return query select v_queue_id, v_group_id;
    return;
  end if;

  v_queue_id := skep.ensure_queue(p_queue);
  perform 1 from skep.queue q where q.id = v_queue_id for update;
  insert into skep.consumer_group (
    queue_id, name, subscription_mode, subscribed_from, first_polled_at)
  values (v_queue_id, p_group, p_mode, p_from, skep.now())
  on conflict (queue_id, name) do nothing
  returning id into v_group_id;
  if v_group_id is null then
    update skep.consumer_group g set first_polled_at = coalesce(g.first_polled_at, skep.now())
    where g.queue_id = v_queue_id and g.name = p_group
    returning g.id into strict v_group_id;
    return query select v_queue_id, v_group_id;
    return;
  end if;

  insert into skep.cursor (partition_id, group_id, queue_id, acked, available_at)
  select p.id, v_group_id, v_queue_id,
         case p_mode
           when 'new' then p.head
           when 'timestamp' then skep.offset_before(p.id, p_from)
           else p.tail - 1
         end,
         skep.now()
  from skep.partition p
  where p.queue_id = v_queue_id;

  return query select v_queue_id, v_group_id;
end $$;

-- hand_over: give polls that wait what was just pushed, and wake the other idle cursors.
-- Takes   per partition pushed to, in parallel arrays: p_partition_id, ascending; p_count, the
--         messages pushed; and the poll that gets them: p_group_id (null: no poll), p_lease_id
--         (new), p_batch, p_lease_s (0: the queue's lease time).
-- Returns a row per claim, of the messages (taken_from, taken_to]. is_only: the partition has no
--         other cursor. No row for a partition that is not idle for the group, or where a claim
--         takes more than waits_behind.
-- Locks   idle skep.cursor rows for no key update, in (partition_id, group_id) order; the caller
--         pushed in the same transaction and holds the partitions.
-- Model   WakeUp!LookAtCursor, WakeUp!HandOver, Delivery!Claim
-- Why     Where consumers keep up, each push wakes a cursor only for a poll to claim it. Here the
--         push claims it for that poll: two transactions and two changes of the cursor become one,
--         and nothing is read, because the broker has the messages. It does what wake_idle and
--         pop_messages would do one after the other, in one update: that waits for cursors in index
--         order, and looks again at one that changed meanwhile. Not for polls that are acknowledged
--         on delivery: the next claim of the partition would bury one that is to be undone.
--         push_to_poll does the same for a single partition.
create function skep.hand_over(
  p_partition_id bigint[], p_count integer[], p_group_id integer[], p_lease_id uuid[],
  p_batch integer[], p_lease_s integer[])
returns table (
  partition_id bigint, taken_from bigint, taken_to bigint, is_individual boolean, is_only boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  with looked_at as (
    update skep.cursor c
    set leased_from = case when skep.waits_behind(c, t.group_id, t.low) then t.low
                           else c.leased_from end,
        leased = case when skep.waits_behind(c, t.group_id, t.low) then t.high end,
        lease_id = case when skep.waits_behind(c, t.group_id, t.low) then t.lease_id
                        else c.lease_id end,
        delivered = case when skep.waits_behind(c, t.group_id, t.low) then t.high
                         else c.delivered end,
        deliveries = case when skep.waits_behind(c, t.group_id, t.low) then 1
                          else c.deliveries end,
        steps = case when skep.waits_behind(c, t.group_id, t.low) is not true then c.steps end,
        unanswered = c.unanswered
          + coalesce(skep.waits_behind(c, t.group_id, t.low), false)::integer,
        nacked = null,
        retry_at = null,
        available_at = case when skep.waits_behind(c, t.group_id, t.low) then t.next_at
                            else v_now + make_interval(secs => t.hold_s) end
    from (
      select i.id, g.id as group_id, i.lease_id, q.hold_s,
             p.head - i.count as low, least(p.head, p.head - i.count + i.batch) as high,
             v_now + make_interval(
               secs => coalesce(nullif(i.lease_s, 0), nullif(q.lease_time_s, 0), 60)) as next_at,
             q.is_individual
      from unnest(p_partition_id, p_count, p_group_id, p_lease_id, p_batch, p_lease_s)
             i(id, count, group_id, lease_id, batch, lease_s)
      cross join lateral (
        select p.head, p.queue_id from skep.partition p where p.id = i.id offset 0
      ) p
      cross join lateral (
        select greatest(q.delayed_processing_s, q.window_buffer_s) as hold_s, q.lease_time_s,
               q.ack_mode = 'individual' as is_individual, q as queue
        from skep.queue q where q.id = p.queue_id offset 0
      ) q
      left join lateral (
        select g.id from skep.consumer_group g
        where g.id = i.group_id and not g.is_paused and not (q.queue).is_paused
          and not skep.has_delivery_rules(g, q.queue)
        limit 1  -- as in push_doubtful
      ) g on true
    ) t
    -- An array leaves one way to join, as push_segments explains.
    where c.partition_id = any(array[t.id]) and c.available_at is null
    returning c.partition_id, c.group_id, t.low, t.high, t.is_individual,
              c.lease_id = t.lease_id as is_claimed
  )
  select l.partition_id, l.low, l.high, l.is_individual,
         not exists (select from skep.cursor o
                     where o.partition_id = l.partition_id and o.group_id <> l.group_id)
  from looked_at l
  where l.is_claimed;
end $$;

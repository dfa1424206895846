-- push_to_poll: append messages to one partition, and claim them for a poll that waits.
-- Takes   the only partition of a call that would otherwise be push_guaranteed with hand_over, its
--         messages in one segment. p_version: of its queue's rules. The rest as there.
-- Returns one row if the messages were stored, none if that is left to push_contested or
--         push_segments: see push_guaranteed. taken_to: the claim takes (first - 1, taken_to]; null if
--         there is none, see hand_over, and then is_only is null, too.
-- Locks   the skep.partition row for no key update; then its idle skep.cursor rows for no key update,
--         in (partition_id, group_id) order.
-- Model   Push!Lock, WakeUp!LockPartition, WakeUp!LookAtCursor, WakeUp!HandOver, Delivery!Claim
-- Why     Where consumers keep up, nearly every push carries one partition for one poll. Six
--         statements over arrays take a quarter more of PostgreSQL than these two. They remain two:
--         a cursor that became idle while the first waited for the partition is seen by the second.
create function skep.push_to_poll(
  p_partition_id bigint, p_count integer, p_guaranteed_to bigint, p_keys bytea, p_body bytea,
  p_version integer, p_guaranteed_since timestamptz, p_group_id integer, p_lease_id uuid,
  p_batch integer, p_lease_s integer)
returns table (
  first bigint, created_at timestamptz, taken_to bigint, is_individual boolean, is_only boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_xid constant xid8 := pg_current_xact_id();  -- before the time, as mark_time demands
  v_now constant timestamptz := skep.now();
  v_low bigint;
  v_high bigint;
  v_group_id integer;                -- null if no poll of the group may get anything
  v_hold_s integer;
  v_lease_s integer;
begin
  with allocated as (
    update skep.partition p
    set head = p.head + p_count, pushed_at = greatest(p.pushed_at, v_now),
        wide_to = case when octet_length(p_body) > 8192 then p.head + p_count
                       else least(p.wide_to, p.head) end
    from skep.queue q left join skep.consumer_group g on g.id = p_group_id
    where p.id = p_partition_id and (p.head = p_guaranteed_to or p_guaranteed_to is null)
      and p.deferred_pushes = 0
      and q.id = p.queue_id and q.version = p_version
      and (q.dedup_window_s = 0
           or p_guaranteed_since <= v_now - make_interval(secs => q.dedup_window_s))
    returning p.queue_id, p.head, p.pushed_at, q.ack_mode = 'individual' as is_individual,
              coalesce(nullif(p_lease_s, 0), nullif(q.lease_time_s, 0), 60) as lease_s,
              greatest(q.delayed_processing_s, q.window_buffer_s) as hold_s,
              case when not g.is_paused and not q.is_paused and not skep.has_delivery_rules(g, q)
                   then g.id end as group_id
  ),
  stored as (
    insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
    select p_partition_id, a.head - p_count + 1, a.head, a.queue_id, a.pushed_at, p_keys, p_body
    from allocated a
  )
  select a.head - p_count, least(a.head, a.head - p_count + p_batch), a.pushed_at, a.is_individual,
         a.lease_s, a.hold_s, a.group_id
  into v_low, v_high, created_at, is_individual, v_lease_s, v_hold_s, v_group_id
  from allocated a;
  if not found then
    return;
  end if;
  first := v_low + 1;

  with looked_at as (
    update skep.cursor c
    set leased_from = case when skep.waits_behind(c, v_group_id, v_low) then v_low
                           else c.leased_from end,
        leased = case when skep.waits_behind(c, v_group_id, v_low) then v_high end,
        lease_id = case when skep.waits_behind(c, v_group_id, v_low) then p_lease_id
                        else c.lease_id end,
        delivered = case when skep.waits_behind(c, v_group_id, v_low) then v_high
                         else c.delivered end,
        deliveries = case when skep.waits_behind(c, v_group_id, v_low) then 1
                          else c.deliveries end,
        steps = case when skep.waits_behind(c, v_group_id, v_low) is not true then c.steps end,
        unanswered = c.unanswered
          + coalesce(skep.waits_behind(c, v_group_id, v_low), false)::integer,
        nacked = null,
        retry_at = null,
        available_at = v_now + make_interval(
          secs => case when skep.waits_behind(c, v_group_id, v_low) then v_lease_s
                       else v_hold_s end)
    where c.partition_id = p_partition_id and c.available_at is null
    returning c.group_id, c.leased
  )
  select l.leased,
         not exists (select from skep.cursor o
                     where o.partition_id = p_partition_id and o.group_id <> l.group_id)
  into taken_to, is_only
  from looked_at l
  where l.leased is not null;
  return next;
end $$;

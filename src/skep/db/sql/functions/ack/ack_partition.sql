-- ack_partition: apply the acks of one call to one cursor.
-- Takes   p_partition_id, p_group_id: the cursor. p_items: positions in the arrays p_lease_id,
--         p_offset, p_key, p_status, p_error of ack_messages. p_now.
-- Returns item, outcome, lease_released, has_more as ack_messages. No row if the group or queue was
--         deleted while the caller waited for the cursor.
-- Locks   as move_cursor; the caller holds the cursor.
-- Why     One cursor at a time keeps the rules readable: find each message, check the lease, walk
--         in offset order, write the cursor once. Cumulative: a completed message completes all
--         before it, and the walk stops at the first failure. Individual: each ack speaks for its
--         own message; a second nack of a message under the same lease is not counted, because the
--         lease goes on and does not fence the repetition. A conflating group is always cumulative:
--         its newest message stands for all before it.
create function skep.ack_partition(
  p_partition_id bigint, p_group_id integer, p_items integer[], p_lease_id uuid[],
  p_offset bigint[], p_key bytea[], p_status text[], p_error text[], p_now timestamptz)
returns table (item integer, outcome text, lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_cursor skep.cursor;
  v_queue skep.queue;
  v_is_individual boolean;
  v_has_lease boolean;
  v_acked bigint;                    -- moved by cumulative acks
  v_is_stopped boolean := false;     -- by a failure below, where acks are cumulative
  v_done bigint[] := '{}';           -- finished individually
  v_nacked bigint[] := '{}';
  v_failed bigint[] := '{}';         -- those of v_nacked that failed ...
  v_failures integer[] := '{}';      -- ... and how often so far
  v_pause interval := '0';
  v_ack record;
  v_outcome text;
  v_last_at bigint;                  -- the previous message and its outcome
  v_last_outcome text;
  v_item integer[] := '{}';
  v_outcomes text[] := '{}';
  v_moved record;
begin
  select * into v_cursor from skep.cursor c
  where c.partition_id = p_partition_id and c.group_id = p_group_id;
  select q.* into v_queue from skep.queue q where q.id = v_cursor.queue_id;
  if not found then
    return;
  end if;
  v_is_individual := v_queue.ack_mode = 'individual' and not exists (
    select from skep.consumer_group g where g.id = p_group_id and g.conflation);
  v_acked := v_cursor.acked;
  v_has_lease := v_cursor.leased is not null and v_cursor.available_at > p_now;

  for v_ack in
    select i.item, p_status[i.item] as status, p_error[i.item] as error, o.at,
           p_lease_id[i.item] is null
             or (v_has_lease and p_lease_id[i.item] = v_cursor.lease_id) as is_fenced,
           p_lease_id[i.item] is null or o.at <= v_cursor.leased as is_covered,
           o.at <= v_cursor.acked as was_acked,
           coalesce(v_cursor.done @> o.at, false) as was_done_ahead,
           coalesce(v_cursor.nacked @> o.at, false) as was_nacked,
           1 + coalesce(f.failures, 0) as failures
    from unnest(p_items) i(item)
    cross join lateral (
      select case
        when p_offset[i.item] is null then
          skep.find_offset(p_partition_id, v_cursor.acked, v_cursor.leased, p_key[i.item])
        -- A client may name an offset without a message; a lease bounds it.
        when p_offset[i.item] > 0
             and (p_lease_id[i.item] is not null or p_offset[i.item] <= (
               select p.head from skep.partition p where p.id = p_partition_id))
          then p_offset[i.item]
      end as at
      offset 0  -- or the search would be repeated wherever its result is used
    ) o
    left join unnest(v_cursor.failed_offset, v_cursor.failed_count) f(at, failures)
      on f.at = o.at
    -- Of several acks of one message the most severe decides.
    order by o.at nulls first,
             array_position(
               array['dlq', 'failed', 'retry', 'completed', 'expired'], p_status[i.item])
  loop
    v_outcome := case
      when v_ack.at is null then 'not_found'
      when v_ack.was_acked
           or v_ack.was_done_ahead and not (
             -- It also completes earlier messages, some of which may be unfinished.
             v_ack.status = 'completed' and v_ack.at > v_acked and v_ack.is_fenced
             and v_ack.is_covered and not v_is_individual and not v_is_stopped)
        then case when v_ack.status in ('completed', 'expired') then 'noop' else 'already_done' end
      when not v_ack.is_fenced then 'lease_lost'
      when not v_ack.is_covered then 'beyond_lease'
      when v_ack.at <= v_acked
           or (v_ack.at = v_last_at and v_last_outcome in ('acked', 'dead_lettered', 'dropped'))
      then
        case when v_ack.status in ('completed', 'expired') then 'acked' else 'already_done' end
      when v_ack.status = 'expired' then 'expired'
      when v_is_stopped or (v_ack.at = v_last_at and v_last_outcome = 'retried') then
        case v_ack.status when 'completed' then 'redelivered' else 'retried' end
      when v_ack.status = 'completed' then 'acked'
      when v_ack.status = 'retry' or v_ack.was_nacked and v_ack.status = 'failed' then 'retried'
      when v_ack.status = 'failed' and v_ack.failures <= v_queue.retry_limit then 'retried'
      when v_ack.status = 'dlq' or v_queue.dead_letter_queue or v_queue.dlq_after_max_retries
        then 'dead_lettered'
      else 'dropped'
    end;
    v_item := v_item || v_ack.item;
    v_outcomes := v_outcomes || v_outcome;

    if v_outcome = 'expired' then
      v_done := v_done || v_ack.at;
    elsif v_ack.at <= v_acked or v_is_stopped or v_ack.at = v_last_at
          or v_outcome not in ('acked', 'dead_lettered', 'dropped', 'retried') then
      continue;
    elsif v_outcome = 'retried' then
      v_is_stopped := not v_is_individual;
      v_nacked := v_nacked || v_ack.at;
      if v_ack.status = 'failed' and not v_ack.was_nacked then
        v_failed := v_failed || v_ack.at;
        v_failures := v_failures || v_ack.failures;
        v_pause := greatest(v_pause, skep.retry_pause(
          v_ack.failures, v_queue.retry_delay_ms, v_queue.retry_delay_ms_max));
      end if;
    else
      if v_outcome = 'dead_lettered' then
        perform skep.bury_range(
          p_partition_id, p_group_id, v_ack.at - 1, v_ack.at,
          coalesce(nullif(v_ack.error, ''),
                   case v_ack.status when 'dlq' then '' else 'Retries exhausted' end),
          p_now, v_ack.failures);
      end if;
      if v_is_individual then
        v_done := v_done || v_ack.at;
      else
        v_acked := v_ack.at;
      end if;
    end if;
    v_last_at := v_ack.at;
    v_last_outcome := v_outcome;
  end loop;

  select * into strict v_moved from skep.move_cursor(
    v_cursor, v_acked, v_done, v_nacked, v_failed, v_failures, p_now + v_pause, v_is_stopped,
    p_now);
  return query
  select u.item, u.outcome,
         v_has_lease and v_moved.is_finished
           and u.outcome not in ('lease_lost', 'beyond_lease', 'not_found'),
         v_moved.has_more
  from unnest(v_item, v_outcomes) u(item, outcome);
end $$;

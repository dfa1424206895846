-- ack_partition: apply the acks of one call to one cursor.
-- Takes   p_items: positions in the arrays, which are those of ack_messages; p_key: null if all
--         acks of the call have offsets.
-- Returns as ack_messages. No row if the group or queue was deleted meanwhile.
-- Locks   as move_cursor; the caller holds the cursor.
-- Model   Delivery!Ack
-- Why     One cursor at a time keeps the rules readable: find each message, check the lease, walk
--         in offset order, write the cursor once. Cumulative: a completed message completes all
--         before it, and the walk stops at the first failure. Individual, or if it is not certain
--         which message an ack means (name_messages): each ack speaks for its own message; a second
--         nack of a message under the same lease is not counted, because the lease goes on and does
--         not fence the repetition. A conflating group is always cumulative: its newest message
--         stands for all before it.
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
  v_dead bigint[] := '{}';           -- to bury, with their errors and failures
  v_dead_error text[] := '{}';
  v_dead_failures integer[] := '{}';
  v_named bigint[];                  -- by place in p_items, where an ack has only a key ...
  v_alone integer[];                 -- ... places that speak for their own message only ...
  v_doubtful integer[];              -- ... and places that contradict others
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
  if p_key is not null then
    v_named := array_fill(null::bigint, array[cardinality(p_items)]);
    for v_ack in select * from skep.name_messages(v_cursor, p_items, p_offset, p_key, p_status) loop
      v_named[v_ack.place] := v_ack.at;
      if v_ack.is_alone then
        v_alone := v_alone || v_ack.place;
      end if;
      if v_ack.is_doubtful then
        v_doubtful := v_doubtful || v_ack.place;
      end if;
    end loop;
    if v_alone is not null and exists (
      select from skep.consumer_group g where g.id = p_group_id and g.conflation)
    then
      v_alone := null; v_doubtful := null;
    end if;
  end if;

  for v_ack in
    select i.item, p_status[i.item] as status, p_error[i.item] as error, o.at,
           p_lease_id[i.item] is null
             or (v_has_lease and p_lease_id[i.item] = v_cursor.lease_id) as is_fenced,
           p_lease_id[i.item] is null or o.at <= v_cursor.leased as is_covered,
           o.at <= v_cursor.acked as was_acked,
           coalesce(v_cursor.done @> o.at, false) as was_done_ahead,
           coalesce(v_cursor.nacked @> o.at, false) as was_nacked,
           1 + coalesce(f.failures, 0) as failures,
           v_is_individual or coalesce(i.place = any(v_alone), false) as is_alone,
           coalesce(i.place = any(v_doubtful), false) as is_doubtful
    from unnest(p_items) with ordinality i(item, place)
    cross join lateral (
      select case
        when p_offset[i.item] is null then v_named[i.place]
        -- A client may name an offset without a message; a lease bounds it.
        when p_offset[i.item] > 0
             and (p_lease_id[i.item] is not null or p_offset[i.item] <= (
               select p.head from skep.partition p where p.id = p_partition_id))
          then p_offset[i.item]
      end as at
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
             and v_ack.is_covered and not v_ack.is_alone and not v_is_stopped)
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
      when v_ack.status = 'completed' and v_ack.is_doubtful then 'redelivered'
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
          or v_outcome not in ('acked', 'dead_lettered', 'dropped', 'retried', 'redelivered') then
      continue;
    elsif v_outcome in ('retried', 'redelivered') then
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
        v_dead := v_dead || v_ack.at;
        v_dead_error := v_dead_error || coalesce(
          nullif(v_ack.error, ''),
          case v_ack.status when 'dlq' then '' else 'Retries exhausted' end);
        v_dead_failures := v_dead_failures || v_ack.failures;
      end if;
      if v_ack.is_alone then
        v_done := v_done || v_ack.at;
      else
        v_acked := v_ack.at;
      end if;
    end if;
    v_last_at := v_ack.at;
    v_last_outcome := v_outcome;
  end loop;

  if cardinality(v_dead) > 0 then
    perform skep.bury_messages(
      p_partition_id, p_group_id, v_dead, v_dead_error, v_dead_failures, p_now);
  end if;
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

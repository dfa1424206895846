/*
ack_lane: apply the acks of one call that concern one cursor.

Takes   p_partition_id, p_group_id: the cursor. p_items: positions in the arrays p_lease_id,
        p_offset, p_key, p_status, p_error of ack_messages. p_now.
Returns item, outcome, lease_released, has_more as ack_messages.
Locks   the cursor is locked by the caller; its skep.partition row for share, skipping if locked.
Why     One cursor at a time keeps the rules readable: find each message, check the lease, walk in
        offset order and stop moving at the first failure, then write the cursor once.
*/
create function skep.ack_lane(
  p_partition_id bigint, p_group_id integer, p_items integer[], p_lease_id uuid[],
  p_offset bigint[], p_key bytea[], p_status text[], p_error text[], p_now timestamptz)
returns table (item integer, outcome text, lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_cursor skep.cursor;
  v_queue skep.queue;
  v_acked bigint;
  v_failed_at bigint;                -- the lowest offset that failed in this call
  v_failed_offset bigint[];
  v_failed_count integer[];
  v_next timestamptz;                -- when the lane may be served again, if released
  v_released boolean := false;
  v_has_lease boolean;
  v_ack record;
  v_failures integer;
  v_item integer[] := '{}';
  v_outcome text[] := '{}';
begin
  select * into strict v_cursor from skep.cursor c
  where c.partition_id = p_partition_id and c.group_id = p_group_id;
  select q.* into strict v_queue from skep.queue q where q.id = v_cursor.queue_id;
  v_acked := v_cursor.acked;
  v_failed_offset := v_cursor.failed_offset;
  v_failed_count := v_cursor.failed_count;
  v_has_lease := v_cursor.leased is not null and v_cursor.available_at > p_now;

  for v_ack in
    select i.item, p_status[i.item] as status, p_error[i.item] as error, o.at,
           p_lease_id[i.item] is null
             or (v_has_lease and p_lease_id[i.item] = v_cursor.lease_id
                 and o.at <= v_cursor.leased) as is_fenced
    from unnest(p_items) i(item)
    cross join lateral (
      select coalesce(
        p_offset[i.item],
        skep.find_offset(p_partition_id, v_cursor.acked, v_cursor.leased, p_key[i.item])) as at
    ) o
    -- Of several acks of one message the most severe decides.
    order by o.at nulls first,
             array_position(array['dlq', 'failed', 'retry', 'completed'], p_status[i.item])
  loop
    v_item := v_item || v_ack.item;
    v_outcome := v_outcome || case
      when v_ack.at is null then 'not_found'
      when v_ack.at <= v_cursor.acked then
        case v_ack.status when 'completed' then 'noop' else 'already_done' end
      when not v_ack.is_fenced then 'lease_lost'
      when v_ack.at <= v_acked then
        case v_ack.status when 'completed' then 'acked' else 'already_done' end
      when v_failed_at is not null then
        case v_ack.status when 'completed' then 'redelivered' else 'retried' end
      else v_ack.status
    end;
    if v_failed_at is not null or v_outcome[cardinality(v_outcome)] <> v_ack.status then
      continue;
    end if;

    if v_ack.status = 'failed' then
      v_failures := 1 + coalesce(
        v_failed_count[array_position(v_failed_offset, v_ack.at)], 0);
      if v_failures <= v_queue.retry_limit then
        select array_agg(f.at), array_agg(f.count) into v_failed_offset, v_failed_count
        from (
          select u.at, u.count from unnest(v_failed_offset, v_failed_count) u(at, count)
          where u.at <> v_ack.at
          union all select v_ack.at, v_failures
        ) f;
        v_failed_at := v_ack.at;
        v_next := p_now + v_queue.retry_delay_ms * interval '1 millisecond';
        v_outcome[cardinality(v_outcome)] := 'retried';
        continue;
      end if;
    elsif v_ack.status = 'retry' then
      v_failed_at := v_ack.at;
      v_next := p_now;
      v_outcome[cardinality(v_outcome)] := 'retried';
      continue;
    end if;

    if v_ack.status = 'completed' then
      v_outcome[cardinality(v_outcome)] := 'acked';
    else
      perform skep.bury_message(
        v_cursor.partition_id, v_cursor.group_id, v_cursor.queue_id, v_ack.at,
        coalesce(nullif(v_ack.error, ''),
                 case v_ack.status when 'dlq' then '' else 'Retries exhausted' end),
        1 + coalesce(v_failed_count[array_position(v_failed_offset, v_ack.at)], 0), p_now);
      v_outcome[cardinality(v_outcome)] := 'dead_lettered';
    end if;
    v_acked := v_ack.at;
  end loop;

  if v_failed_at is not null then
    v_released := v_has_lease;
  elsif v_acked > v_cursor.acked
        and (v_cursor.leased is null or v_acked >= v_cursor.leased) then
    v_released := v_has_lease;
    -- Idle only while no push is in flight on the lane; see take_lanes.
    perform 1 from skep.partition p
    where p.id = p_partition_id and p.head <= v_acked for share skip locked;
    v_next := case when found then null else p_now end;
  end if;

  if v_failed_at is not null or v_acked > v_cursor.acked then
    update skep.cursor c
    set acked = v_acked,
        leased = case when v_failed_at is not null or v_acked >= c.leased then null
                      else c.leased end,
        available_at = case
          when v_failed_at is not null or c.leased is null or v_acked >= c.leased then v_next
          else c.available_at end,
        leased_from = null,
        -- What follows in the range under lease was delivered with it.
        deliveries = case when v_acked = c.acked then c.deliveries
                          when v_acked < c.leased then 1 else 0 end,
        failed_offset = (select array_agg(u.at) from unnest(v_failed_offset) u(at)
                         where u.at > v_acked),
        failed_count = (select array_agg(u.count)
                        from unnest(v_failed_offset, v_failed_count) u(at, count)
                        where u.at > v_acked)
    where c.partition_id = p_partition_id and c.group_id = p_group_id;
  end if;

  return query
  select u.item, u.outcome, v_released and u.outcome not in ('lease_lost', 'not_found'),
         v_next is not null
  from unnest(v_item, v_outcome) u(item, outcome);
end $$;

-- move_cursor: write the result of acks to one cursor where they are not plain.
-- Takes   p_acked: its position after cumulative acks. p_done: offsets finished individually.
--         p_nacked: offsets to deliver again; of these p_failed failed, p_failures times so far.
--         p_retry_at: when they may come again. p_ends_lease: although part of it is unanswered.
-- Returns is_finished: the cursor moved or stopped, and holds no lease; has_more: it is ready or
--         backing off, not idle.
-- Locks   the skep.partition row for share, skipping it if locked.
-- Model   Delivery!Ack
-- Why     A lease ends when every message under it is done or nacked. The partition then waits
--         until the last nacked message may come again; without one it is ready, or idle if nothing
--         is left and no push is in flight (see take_partitions). A lease with nacked messages
--         lasts at least until they may come again, or its end would deliver them early. An
--         unfenced ack does not shorten a back-off. Failure counts are forgotten when the message
--         is done. Most acks are plain: complete_lease moves the cursor of the only ack of a call,
--         complete_leases those of many. Cursors also move in take_partitions (claims and
--         auto-acks), release_claims (a claim taken back), pass_cursors (messages that went away)
--         and seek_cursors (seek).
create function skep.move_cursor(
  p_cursor skep.cursor, p_acked bigint, p_done bigint[], p_nacked bigint[], p_failed bigint[],
  p_failures integer[], p_retry_at timestamptz, p_ends_lease boolean, p_now timestamptz)
returns table (is_finished boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_acked bigint;
  v_done int8multirange;
  v_nacked int8multirange := p_cursor.nacked;
  v_retry_at timestamptz := p_cursor.retry_at;
  v_is_finished boolean;
  v_available_at timestamptz := p_cursor.available_at;
begin
  select d.acked, d.done into v_acked, v_done
  from skep.pass_done(
    p_acked,
    coalesce(
      p_cursor.done + (select range_agg(int8range(n, n + 1)) from unnest(p_done) n),
      p_cursor.done,
      (select range_agg(int8range(n, n + 1)) from unnest(p_done) n))) d;
  if v_acked = p_cursor.acked and cardinality(p_done) = 0 and cardinality(p_nacked) = 0 then
    return query select false, false;
    return;
  end if;

  if cardinality(p_nacked) > 0 then
    v_nacked := coalesce(v_nacked, '{}')
      + (select range_agg(int8range(n, n + 1)) from unnest(p_nacked) n);
    v_retry_at := greatest(v_retry_at, p_retry_at);
  end if;
  v_is_finished := p_ends_lease or v_acked >= coalesce(p_cursor.leased, v_acked)
    or coalesce(v_done, '{}') + coalesce(v_nacked, '{}')
       @> int8range(v_acked + 1, p_cursor.leased + 1)
    or (v_nacked is not null and p_cursor.available_at <= p_now);
  if p_cursor.leased is null and exists (
       select from unnest(p_cursor.failed_offset) f(at)
       where f.at > v_acked and not coalesce(v_done @> f.at, false)) then
    v_retry_at := greatest(v_retry_at, p_cursor.available_at);
  end if;
  if not v_is_finished then
    v_available_at := greatest(v_available_at, v_retry_at);
  else
    -- Idle only while no push is in flight on the partition.
    perform 1 from skep.partition p
    where p.id = p_cursor.partition_id and p.head <= v_acked for share skip locked;
    v_available_at := case when not found then greatest(v_retry_at, p_now) end;
  end if;

  update skep.cursor c
  set acked = v_acked,
      done = v_done,
      leased = case when v_is_finished then null else c.leased end,
      available_at = v_available_at,
      leased_from = case when not v_is_finished then c.leased_from end,
      -- The rest of the leased range was delivered with it.
      unanswered = case when v_acked + 1 = any(p_nacked) then 0
                        when v_acked = c.acked then c.unanswered
                        when v_acked < c.leased then 1 else 0 end,
      nacked = case when not v_is_finished then v_nacked end,
      retry_at = case when not v_is_finished then v_retry_at end,
      (failed_offset, failed_count) = (
        select array_agg(f.at), array_agg(f.failures)
        from (
          select o.at, o.failures from unnest(c.failed_offset, c.failed_count) o(at, failures)
          where not exists (select from unnest(p_failed) n(at) where n.at = o.at)
          union all
          select n.at, n.failures from unnest(p_failed, p_failures) n(at, failures)
        ) f
        where f.at > v_acked and not coalesce(v_done @> f.at, false))
  where c.partition_id = p_cursor.partition_id and c.group_id = p_cursor.group_id;
  return query select v_is_finished, v_is_finished and v_available_at is not null;
end $$;

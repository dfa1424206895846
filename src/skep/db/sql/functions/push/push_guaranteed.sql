-- push_guaranteed: append messages to each of many partitions that no other broker pushed to.
-- Takes   p_partition_id: ascending, no id twice. p_guaranteed_to: the broker's cache proves that
--         none of the keys occurs up to this offset; null for a queue without duplicate detection.
--         p_queue_id, p_version: the queues and the versions of their rules. p_guaranteed_since:
--         the guarantee covers segments created at or after. p_wakes: false if the same statement
--         calls hand_over, which wakes, too. The rest as row_spans.
-- Returns per partition that got messages. No row for a partition that another broker pushed to,
--         that has deferred operations or does not exist; none at all if the guarantee does not
--         reach back to the start of the window or a queue is gone. Those go through push_segments.
-- Raises  SK409 if a queue was reconfigured.
-- Locks   skep.partition rows for no key update, in id order; then idle skep.cursor rows in
--         (partition_id, group_id) order.
-- Model   Push!Lock, WakeUp!LockPartition
-- Why     Nearly every push is of this kind, and one statement does it: the update locks in array
--         order, because row-by-row look-ups are the only possible join (see push_segments), and
--         re-checks a row that changed while it waited. Partitions left out are not retried in the
--         same transaction: it holds locks on higher ids. push_to_poll does the same for a single
--         partition and a poll that waits for it.
create function skep.push_guaranteed(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[], p_keys bytea[],
  p_body bytea[], p_queue_id integer[], p_version integer[], p_guaranteed_since timestamptz,
  p_row_to integer[] default null, p_row_end integer[] default null,
  p_wakes boolean default true)
returns table (partition_id bigint, first bigint, created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_xid constant xid8 := pg_current_xact_id();  -- before the time, as mark_time demands
  v_now constant timestamptz := skep.now();
  v_window constant integer := skep.check_rules(p_queue_id, p_version);
  -- For all partitions of the call: asking for each would cost more than it saves a pop.
  v_is_wide constant boolean := (
    select bool_or(octet_length(p_body[n]) > 8192) from generate_series(1, cardinality(p_body)) n);
begin
  if v_window is null
     or (v_window > 0 and p_guaranteed_since > v_now - make_interval(secs => v_window)) then
    return;
  end if;

  return query
  with allocated as (
    update skep.partition p
    set head = p.head + i.count, pushed_at = greatest(p.pushed_at, v_now),
        wide_to = case when v_is_wide then p.head + i.count else least(p.wide_to, p.head) end
    from unnest(p_partition_id, p_count, p_guaranteed_to) with ordinality
           i(id, count, guaranteed_to, place)
    where p.id = any(array[i.id]) and (p.head = i.guaranteed_to or i.guaranteed_to is null)
      and p.deferred_pushes = 0
    returning p.id, p.queue_id, p.head - i.count as base, i.count, p.pushed_at,
              i.place::integer as place
  ),
  stored as (
    insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
    select a.id, a.base + r.low, a.base + r.high, a.queue_id, a.pushed_at,
           substr(p_keys[a.place], r.low * 16 - 15, (r.high - r.low + 1) * 16), p_body[r.number]
    from allocated a cross join lateral skep.row_spans(a.place, a.count, p_row_to, p_row_end) r
  )
  select a.id, a.base + 1, a.pushed_at from allocated a;

  if p_wakes then
    perform skep.wake_idle(p_partition_id, v_now);
  end if;
end $$;

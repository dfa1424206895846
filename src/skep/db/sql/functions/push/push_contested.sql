-- push_contested: append messages to each of many partitions that other brokers push to as well.
-- Takes   as push_guaranteed. The broker's cache proves nothing above guaranteed_to.
-- Returns per partition that got messages: first and created_at, keys null. Then per segment that others stored
--         above guaranteed_to, a gap in the broker's cache: first, created_at and keys. No row for a
--         partition with deferred operations, one that does not exist or one with a long gap; none at
--         all if the guarantee does not reach back to the start of the window or a queue is gone.
--         Those go through push_segments.
-- Raises  SK409 if a queue was reconfigured. SK410 if a key occurs in a gap: nothing is stored, and
--         the broker sends the call through push_segments.
-- Locks   skep.partition rows for no key update, in id order; then idle skep.cursor rows in
--         (partition_id, group_id) order.
-- Model   Push!Lock, Push!Searched
-- Why     Where brokers share partitions every push finds a gap, and a duplicate in it, a retry at
--         another broker within one flush, is rare. So it stores first and compares then, in two
--         statements for the whole call: probing partition by partition costs five times as much,
--         while others wait for the locks. The second statement has a snapshot of its own: once the
--         locks are held, it sees all that others stored. Up to about 22 x 22 keys, looking for one
--         after the other is quicker than a join; the many keys of a large flush are joined once
--         with all segments of the gap, which may be as many.
create function skep.push_contested(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[], p_keys bytea[],
  p_body bytea[], p_queue_id integer[], p_version integer[], p_guaranteed_since timestamptz,
  p_row_to integer[] default null, p_row_end integer[] default null)
returns table (partition_id bigint, first bigint, created_at timestamptz, keys bytea)
language plpgsql as $$
#variable_conflict use_column
declare
  v_xid constant xid8 := pg_current_xact_id();  -- before the time, as mark_time demands
  v_now constant timestamptz := skep.now();
  v_window constant integer := skep.check_rules(p_queue_id, p_version);
  v_window_start constant timestamptz := v_now - make_interval(secs => v_window);
  v_gap_max constant integer := 65536;
  v_few constant integer := 512;           -- 32 keys
  -- For all partitions of the call: asking for each would cost more than it saves a pop.
  v_is_wide constant boolean := (
    select bool_or(octet_length(p_body[n]) > 8192) from generate_series(1, cardinality(p_body)) n);
begin
  if v_window is null or (v_window > 0 and p_guaranteed_since > v_window_start) then
    return;
  end if;

  return query
  with allocated as (
    update skep.partition p
    set head = p.head + i.count, pushed_at = greatest(p.pushed_at, v_now),
        wide_to = case when v_is_wide then p.head + i.count else least(p.wide_to, p.head) end
    from unnest(p_partition_id, p_count, p_guaranteed_to) with ordinality
           i(id, count, guaranteed_to, place)
    where p.id = any(array[i.id])
      and (p.head between i.guaranteed_to and i.guaranteed_to + v_gap_max
           or i.guaranteed_to is null)
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
  select a.id, a.base + 1, a.pushed_at, null::bytea from allocated a;

  return query
  select i.id, s.first, s.created_at, s.keys
  from unnest(p_partition_id, p_guaranteed_to, p_keys) i(id, guaranteed_to, keys)
  cross join lateral (
    select s.first, s.created_at, s.keys from skep.segment s
    where s.partition_id = i.id and s.first > i.guaranteed_to and s.xid <> pg_current_xact_id()
    order by s.first
    limit v_gap_max
  ) s
  where case
    when s.created_at <= v_window_start or length(i.keys) > v_few then true
    when length(i.keys)::bigint * length(s.keys) > 131072
         or exists (
           select from generate_series(0, length(i.keys) / 16 - 1) g
           where position(substr(i.keys, g * 16 + 1, 16) in s.keys) > 0
         ) then skep.refuse_common(i.id, i.keys, s.keys)
    else true
  end;

  perform skep.refuse_common(i.id, i.keys, s.keys)
  from unnest(p_partition_id, p_guaranteed_to, p_keys) i(id, guaranteed_to, keys)
  cross join lateral (
    select string_agg(s.keys, '') as keys from skep.segment s
    where s.partition_id = i.id and s.first > i.guaranteed_to and s.xid <> pg_current_xact_id()
      and s.created_at > v_window_start
  ) s
  where length(i.keys) > v_few and s.keys is not null;

  perform skep.wake_idle(p_partition_id, v_now);
end $$;

-- push_segments: append messages to each of many partitions.
-- Takes   p_partition_id: ascending, no id twice. p_count: messages. p_keys: their keys. p_body:
--         the bodies of the segments, p_row_to and p_row_end as row_spans. p_guaranteed_to,
--         p_guaranteed_since: the broker's cache proves that none of the keys occurs up to
--         guaranteed_to in segments created at or after guaranteed_since (0 and 'infinity': it
--         proves nothing). p_resolve: this repeats a call whose outcome was lost, so search above
--         guaranteed_to whatever the window. p_queue_id, p_version: the queues and the versions of
--         their rules; null inside the database.
-- Returns per existing partition. Stored: first and created_at. Not stored because of duplicates:
--         duplicate_index (0-based) and duplicate_offset. In both cases, if others pushed since
--         guaranteed_to: gap_first, gap_keys, gap_created_at, which the broker adds to its cache.
--         Neither stored nor duplicates: deferred operations wait for the partition, and a broker's
--         push must wait behind them. No row: the partition or its queue does not exist.
-- Raises  SK409 if a queue was reconfigured.
-- Locks   skep.partition rows for no key update, in id order; then idle skep.cursor rows in
--         (partition_id, group_id) order.
-- Model   Failover!Store, Push!Lock, Push!Refuse
-- Why     Brokers call push_guaranteed, push_contested or this; SQL enters by push_messages. The
--         others of this folder are steps of these. Offsets are allocated under the row lock, held
--         to commit, so offset order is commit order and a reader never passes a message that
--         appears later. Duplicates are found before anything is allocated: no savepoint, no
--         rollback; the broker sends the rest again. created_at is taken under the lock and never
--         decreases along a partition, even if the server's clock does. A repeated call ignores
--         deferred operations: its first try may have come before them. Here and in all hot
--         functions, rows are looked up by laterals that hold a lock or `offset 0`. That leaves the
--         planner one way: row by row through the index. Plans are cached, and one made for two
--         partitions (read the whole index and join) would be kept for a hundred thousand.
create function skep.push_segments(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[],
  p_guaranteed_since timestamptz[], p_keys bytea[], p_body bytea[], p_resolve boolean,
  p_queue_id integer[] default null, p_version integer[] default null,
  p_row_to integer[] default null, p_row_end integer[] default null)
returns table (
  partition_id bigint, first bigint, created_at timestamptz,
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_doubtful bigint[];
  v_living bigint[];
  v_deferred bigint[];
begin
  if p_queue_id is not null then
    perform skep.check_rules(p_queue_id, p_version);
  end if;
  -- One pass locks in order and finds the partitions that the guarantee does not cover.
  v_now := skep.now();
  select array_agg(l.id) filter (where l.doubtful and not l.deferred),
         array_agg(l.id) filter (where not l.deferred),
         array_agg(l.id) filter (where l.deferred)
  into v_doubtful, v_living, v_deferred
  from (
    select i.id, p.deferred_pushes > 0 and p_queue_id is not null and not p_resolve as deferred,
           (p.head > i.guaranteed_to and (q.dedup_window_s > 0 or p_resolve))
           or (q.dedup_window_s > 0
               and i.guaranteed_since > v_now - make_interval(secs => q.dedup_window_s)) as doubtful
    from unnest(p_partition_id, p_guaranteed_to, p_guaranteed_since)
           i(id, guaranteed_to, guaranteed_since)
    cross join lateral (
      select p.head, p.queue_id, p.deferred_pushes
      from skep.partition p where p.id = i.id for no key update
    ) p
    cross join lateral (
      select q.dedup_window_s from skep.queue q where q.id = p.queue_id offset 0
    ) q
  ) l;
  if v_deferred is not null then
    return query
    select d.id, null::bigint, null::timestamptz, '{}'::integer[], '{}'::bigint[], null::bigint,
           null::bytea, null::timestamptz
    from unnest(v_deferred) d(id);
  end if;
  if v_living is null then
    return;
  end if;
  v_now := greatest(v_now, skep.now());  -- the locks may have been waited for

  -- Nothing is stored in partitions of a removed queue, nor where deferred operations wait.
  v_living := case when cardinality(v_living) < cardinality(p_partition_id) then v_living end;
  if v_doubtful is not null then
    return query select * from skep.push_doubtful(
      p_partition_id, p_count, p_guaranteed_to, p_guaranteed_since, p_keys, p_body, p_resolve,
      v_doubtful, v_now, p_row_to, p_row_end, v_living);
    return;
  end if;
  return query select * from skep.append_segments(
    p_partition_id, p_count, p_keys, p_body, v_now, p_row_to, p_row_end, v_living);
end $$;

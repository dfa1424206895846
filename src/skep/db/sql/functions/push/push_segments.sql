/*
push_segments: append one segment to each of many partitions.

Takes   p_partition_id: ascending, no id twice. p_count: messages in the segment. p_keys, p_body:
        their keys and envelopes. p_guaranteed_to, p_guaranteed_since: the broker's word that none of
        the keys occurs at offsets up to guaranteed_to in segments created at or after guaranteed_since
        (0 and 'infinity' when it knows nothing). p_resolve: this repeats a call whose outcome was
        lost, so look for the keys above guaranteed_to whatever the window. p_queue_id, p_version: the
        queues of the call and the versions of their rules; null for callers inside the database.
Returns one row per existing partition. Stored: first and created_at. Not stored, because some
        keys are duplicates: duplicate_index (0-based) and duplicate_offset. Either way, when
        others had pushed since guaranteed_to, gap_first, gap_keys and gap_created_at tell what, so
        that the broker can guarantee it from now on. Neither stored nor a single duplicate:
        operations wait for the partition, and a push of a broker waits behind them. No row: the
        partition does not exist, or its queue was removed.
Raises  SK409 when a queue was configured anew.
Locks   skep.partition rows for no key update, in id order, until commit; then idle skep.cursor
        rows in (partition_id, group_id) order.
Why     The offset is allocated under the row lock and held to commit, so offset order is commit
        order and a reader can never pass a message that appears later. A duplicate is found
        before anything is allocated: no savepoint, no rollback, and the broker sends the rest
        again. created_at is taken under the lock and never decreases along a partition, even
        when the server's clock does. Whether operations wait is a column of the row that is locked
        anyway. A repeated call does not ask: its first try may have been before them.
        Here and in all functions of the hot path, rows are looked up by laterals that hold a lock
        or `offset 0`. That leaves the planner one way to go, row by row through the index. Plans
        are made once: the one that suits two partitions, to read the whole index and join, would be
        kept when there are a hundred thousand.
*/
create function skep.push_segments(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[],
  p_guaranteed_since timestamptz[], p_keys bytea[], p_body bytea[], p_resolve boolean,
  p_queue_id integer[] default null, p_version integer[] default null)
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
  -- One pass locks in order and finds the partitions for which the broker's word is not enough.
  v_now := skep.now();
  select array_agg(l.id) filter (where l.doubtful), array_agg(l.id) filter (where not l.deferred),
         array_agg(l.id) filter (where l.deferred)
  into v_doubtful, v_living, v_deferred
  from (
    select i.id, p.deferred_pushes > 0 and p_queue_id is not null and not p_resolve as deferred,
           (p.head > i.guaranteed_to and (q.dedup_window_s > 0 or p_resolve))
           or (q.dedup_window_s > 0
               and i.guaranteed_since > v_now - make_interval(secs => q.dedup_window_s)) as doubtful
    from unnest(p_partition_id, p_guaranteed_to, p_guaranteed_since) i(id, guaranteed_to, guaranteed_since)
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

  if cardinality(v_living) < cardinality(p_partition_id) then
    -- Nothing may be stored in a partition whose queue was removed and that waits for the sweep, nor
    -- in one where operations wait.
    return query
    select r.* from (
      select array_agg(i.id) as id, array_agg(i.count) as count,
             array_agg(i.guaranteed_to) as guaranteed_to, array_agg(i.guaranteed_since) as guaranteed_since,
             array_agg(i.keys) as keys, array_agg(i.body) as body
      from unnest(p_partition_id, p_count, p_guaranteed_to, p_guaranteed_since, p_keys, p_body)
             i(id, count, guaranteed_to, guaranteed_since, keys, body)
      where i.id = any(v_living)
    ) l
    cross join lateral skep.push_segments(
      l.id, l.count, l.guaranteed_to, l.guaranteed_since, l.keys, l.body, p_resolve) r;
    return;
  end if;
  if v_doubtful is not null then
    return query select * from skep.push_doubtful(
      p_partition_id, p_count, p_guaranteed_to, p_guaranteed_since, p_keys, p_body, p_resolve,
      v_doubtful, v_now);
    return;
  end if;
  return query select * from skep.append_segments(p_partition_id, p_count, p_keys, p_body, v_now);
end $$;

-- sequence_due: append scheduled messages that are due to the log.
-- Takes   at least one message is moved, whatever the limits.
-- Returns one row. queue_id, partitions: parallel arrays, the queues that got messages and in how
--         many partitions each. moved: messages that no longer wait, duplicates included. is_busy:
--         another session is sequencing, and nothing was done. next_s: seconds until the next
--         message is due, 0 or less if some are; null if none waits.
-- Locks   an advisory lock, or nothing at all; the skep.scheduled rows for update, skipping locked
--         ones; their skep.queue rows for share, in id order; as provision_partitions for missing
--         partitions; then as push_segments.
-- Why     One transaction, so a message is in the log or waiting, never both, never neither. One
--         session at a time keeps messages of a partition in order of time. A message being
--         cancelled or hastened is skipped and looked at again. A message whose transaction id was
--         pushed meanwhile, inside the window, is dropped, and so are all but the first of those
--         that came to wait while the queue had no window. push_segments names all duplicates at
--         once and keeps the partitions locked, so the second round finds none. A partition removed
--         while a message waited is created again; a deleted queue is not, and its messages are
--         dropped.
create function skep.sequence_due(p_limit integer, p_bytes bigint)
returns table (
  queue_id integer[], partitions integer[], moved integer, is_busy boolean, next_s double precision)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_ids bigint[];
  v_stored bigint[] := '{}';  -- partitions that got a segment
  v_done bigint[] := '{}';    -- messages that need not wait any more
begin
  moved := 0;
  is_busy := not pg_try_advisory_xact_lock(hashtext('skep.sequence_due'));
  if not is_busy then
    with due as materialized (
      select s.id, s.deliver_at, octet_length(s.envelope) as bytes from skep.scheduled s
      where s.deliver_at <= v_now
      order by s.deliver_at, s.id limit p_limit
      for update skip locked
    )
    select array_agg(d.id) into v_ids
    from (
      select d.id, sum(d.bytes) over (order by d.deliver_at, d.id) - d.bytes as bytes_before
      from due d
    ) d
    where d.bytes_before < p_bytes;
  end if;
  if v_ids is not null then
    perform 1 from skep.queue q
    where q.id in (select s.queue_id from skep.scheduled s where s.id = any(v_ids))
    order by q.id for share;
    delete from skep.scheduled s
    where s.id = any(v_ids) and not exists (select from skep.queue q where q.id = s.queue_id);
    perform skep.provision_partitions(array_agg(m.queue), array_agg(m.partition))
    from (
      select distinct q.name as queue, s.partition
      from skep.scheduled s join skep.queue q on q.id = s.queue_id
      where s.id = any(v_ids)
        and not exists (
          select from skep.partition p where p.queue_id = s.queue_id and p.name = s.partition)
    ) m
    having count(*) > 0;
  end if;

  for v_round in 1..2 loop
    exit when v_ids is null;
    with due as materialized (
      select s.id, s.key, s.envelope, s.deliver_at, p.id as partition_id,
             q.dedup_window_s > 0 and row_number() over (
               partition by p.id, s.key order by s.deliver_at, s.id) > 1 as is_twin
      from unnest(v_ids) u(id)
      cross join lateral (select s.* from skep.scheduled s where s.id = u.id offset 0) s
      cross join lateral (
        select q.dedup_window_s from skep.queue q where q.id = s.queue_id offset 0
      ) q
      cross join lateral (
        select p.id from skep.partition p
        where p.queue_id = s.queue_id and p.name = s.partition offset 0
      ) p
    ),
    waiting as materialized (
      select d.*, row_number() over (partition by d.partition_id order by d.deliver_at, d.id) - 1
                    as index
      from due d
      where not d.is_twin
    ),
    flush as (
      select w.partition_id, count(*)::integer as count,
             string_agg(w.key, ''::bytea order by w.index) as keys,
             array_agg(w.envelope order by w.index) as envelopes
      from waiting w group by w.partition_id
    ),
    segments as (
      select f.partition_id, f.count, f.keys, e.body, e.row_end,
             sum(cardinality(e.body)) over (order by f.partition_id)::integer as row_to
      from flush f cross join lateral skep.join_envelopes(f.envelopes) e
    ),
    pushed as materialized (
      select r.*
      from (
        select array_agg(g.partition_id order by g.partition_id) as ids,
               array_agg(g.count order by g.partition_id) as counts,
               array_agg(g.keys order by g.partition_id) as keys,
               array_agg(g.row_to order by g.partition_id) as row_to,
               (select array_agg(b.body order by h.partition_id, b.number)
                from segments h cross join unnest(h.body) with ordinality b(body, number)) as bodies,
               (select array_agg(e.row_end order by h.partition_id, e.row_end)
                from segments h cross join unnest(h.row_end) e(row_end)) as row_end
        from segments g
      ) a
      cross join lateral skep.push_segments(
        a.ids, a.counts, array_fill(0::bigint, array[cardinality(a.ids)]),
        array_fill('infinity'::timestamptz, array[cardinality(a.ids)]), a.keys, a.bodies, false,
        null, null, a.row_to, a.row_end) r
      where a.ids is not null
    ),
    settled as (
      select w.id
      from pushed r join waiting w on w.partition_id = r.partition_id
      where r.first is not null or w.index = any(r.duplicate_index)
      union all
      select d.id from due d where d.is_twin
    )
    select v_done || coalesce((select array_agg(t.id) from settled t), '{}'),
           v_stored || coalesce(
             (select array_agg(r.partition_id) from pushed r where r.first is not null), '{}'),
           (select array_agg(w.id) from waiting w where w.id not in (select t.id from settled t))
    into v_done, v_stored, v_ids;
  end loop;

  delete from skep.scheduled s where s.id = any(v_done);
  moved := cardinality(v_done);
  select array_agg(q.queue_id), array_agg(q.partitions) into queue_id, partitions
  from (
    select p.queue_id, count(*)::integer as partitions
    from unnest(v_stored) u(id) join skep.partition p on p.id = u.id group by p.queue_id
  ) q;
  select extract(epoch from s.deliver_at - v_now) into next_s
  from skep.scheduled s order by s.deliver_at, s.id limit 1;
  return next;
end $$;

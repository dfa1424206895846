/*
measure_backlog: what consumer groups have yet to read, in messages and in time.

Takes   p_group_id. p_exact_max: up to so many lanes are counted one by one.
Returns one row per group that exists: group_id; lanes; lanes_behind, backlog, lag_s: the
        lanes with unread messages, the messages, and the age of the oldest of them in seconds;
        ready_s: how long some lane has been waiting for a poll; is_held: some lane is under
        lease; is_estimated: the queue has more than p_exact_max lanes, so lanes are estimated
        from a sample, and so is the backlog unless nearly all of them are at rest.
Locks   none.
Why     Only lanes that are not at rest can hold something unread, and an index lists these: the
        cost depends on them, not on the number of lanes, and a sample bounds it from above.
        stored_at is written out, because ten thousand calls of a function take longer than what
        it does. For the laterals see push_segments.
*/
create function skep.measure_backlog(p_group_id integer[], p_exact_max integer)
returns table (
  group_id integer, lanes bigint, lanes_behind bigint, backlog bigint, lag_s bigint,
  ready_s bigint, is_held boolean, is_estimated boolean)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_sample_blocks constant integer := 150;
  v_large integer[];                      -- groups whose queue has too many lanes to count
  v_busy integer[];                       -- those of them with too many lanes not at rest
begin
  select coalesce(array_agg(i.id), '{}') into v_large
  from unnest(p_group_id) i(id)
  cross join lateral (select g.queue_id from skep.consumer_group g where g.id = i.id offset 0) g
  where exists (
    select 1 from skep.partition p where p.queue_id = g.queue_id offset p_exact_max);
  select coalesce(array_agg(i.id), '{}') into v_busy
  from unnest(v_large) i(id)
  where exists (
    select 1 from skep.cursor c
    where c.group_id = i.id and c.available_at is not null offset p_exact_max / 10);

  return query
  with sampled as materialized (
    select s.group_id, count(*) * max(s.weight) as lanes,
           count(*) filter (where b.backlog > 0) * max(s.weight) as lanes_behind,
           sum(b.backlog) * max(s.weight) as backlog,
           min(b.oldest_at) as oldest_at
    from skep.sample_cursors(v_large, v_sample_blocks) s
    left join lateral (
      select l.backlog, o.created_at as oldest_at
      from (
        select p.tail, skep.lane_backlog(p.head, p.tail, s.acked, s.done) as backlog
        from skep.partition p
        where p.id = s.partition_id and s.available_at is not null and s.group_id = any(v_busy)
        offset 0
      ) l
      left join lateral (
        select o.created_at from skep.segment o
        where o.partition_id = s.partition_id and o.first <= greatest(s.acked + 1, l.tail)
        order by o.first desc limit 1
      ) o on true
      where l.backlog > 0
      offset 0
    ) b on true
    where cardinality(v_large) > 0
    group by s.group_id
  )
  select g.id,
         coalesce(round(s.lanes)::bigint, n.lanes),
         coalesce(round(case when x.is_busy then s.lanes_behind end)::bigint, b.lanes_behind, 0),
         coalesce(round(case when x.is_busy then s.backlog end)::bigint, b.backlog, 0),
         skep.age_s(case when x.is_busy then s.oldest_at else b.oldest_at end, v_now),
         skep.age_s(r.ready_since, v_now),
         h.is_held,
         x.is_large
  from unnest(p_group_id) i(id)
  cross join lateral (
    select g.id, g.queue_id from skep.consumer_group g where g.id = i.id offset 0
  ) g
  cross join lateral (
    select g.id = any(v_large) as is_large, g.id = any(v_busy) as is_busy
  ) x
  left join sampled s on s.group_id = g.id
  left join lateral (
    select count(*) as lanes from skep.partition p
    where not x.is_large and p.queue_id = g.queue_id
  ) n on true
  left join lateral (
    select count(*) as lanes_behind, sum(l.backlog)::bigint as backlog,
           min(o.created_at) as oldest_at
    from (
      select c.partition_id, greatest(c.acked + 1, p.tail) as unread,
             skep.lane_backlog(p.head, p.tail, c.acked, c.done) as backlog
      from skep.cursor c
      cross join lateral (
        select p.head, p.tail from skep.partition p where p.id = c.partition_id offset 0
      ) p
      where not x.is_busy and c.group_id = g.id and c.available_at is not null
      offset 0
    ) l
    left join lateral (
      select o.created_at from skep.segment o
      where o.partition_id = l.partition_id and o.first <= l.unread
      order by o.first desc limit 1
    ) o on true
    where l.backlog > 0
  ) b on true
  left join lateral (
    select c.available_at as ready_since from skep.cursor c
    where c.group_id = g.id and c.available_at <= v_now
    order by c.available_at limit 1
  ) r on true
  cross join lateral (
    select exists (
      select 1 from (
        select c.leased from skep.cursor c
        where c.group_id = g.id and c.available_at > v_now
        limit p_exact_max
      ) c
      where c.leased is not null
    ) as is_held
  ) h;
end $$;

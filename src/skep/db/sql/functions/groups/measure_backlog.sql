-- measure_backlog: what consumer groups have yet to read, in messages and time.
-- Takes   p_exact_max: how many partitions to count, in all.
-- Returns per group that exists: lag_s: the age of the oldest unread message; ready_s: how long a
--         partition has waited for a poll; is_held: some partition is leased; is_estimated:
--         sampled, because there are more than p_exact_max partitions or too many are active.
-- Why     Only partitions that are not idle can hold unread messages, and an index lists them: the
--         cost follows these, and sampling bounds it. Groups with few of them are counted first, so
--         that a busy group never makes them inexact. The look-up of the oldest segment is written
--         out: ten thousand function calls cost more than their work. For the laterals see
--         push_segments.
create function skep.measure_backlog(p_group_id integer[], p_exact_max integer)
returns table (
  group_id integer, partitions bigint, partitions_behind bigint, backlog bigint, lag_s bigint,
  ready_s bigint, is_held boolean, is_estimated boolean)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_sample_blocks constant integer := 150;
  v_sample_partitions constant integer := 100;
  -- Active partitions up to which a single group is counted.
  v_share constant integer := p_exact_max / least(greatest(cardinality(p_group_id), 1), 10);
  v_queue integer[];                      -- the queues of the groups ...
  v_partitions bigint[];                  -- ... and their partitions, up to the maximum + 1
  v_large integer[];                      -- groups whose queue has too many partitions to count
  v_busy integer[];                       -- groups with too many active partitions
begin
  select array_agg(q.id), array_agg(n.partitions) into v_queue, v_partitions
  from (
    select distinct g.queue_id as id from skep.consumer_group g where g.id = any(p_group_id)
  ) q
  cross join lateral (
    select count(*) as partitions from (
      select 1 from skep.partition p where p.queue_id = q.id limit p_exact_max + 1
    ) p
  ) n;
  select coalesce(array_agg(g.id), '{}') into v_large
  from unnest(v_queue, v_partitions) q(id, partitions)
  join skep.consumer_group g on g.queue_id = q.id
  where q.partitions > p_exact_max and g.id = any(p_group_id);
  select coalesce(array_agg(g.id), '{}') into v_busy
  from (
    select i.id, r.partitions, sum(r.partitions) over (order by r.partitions, i.id) as up_to
    from unnest(p_group_id) i(id)
    cross join lateral (
      select count(*) as partitions from (
        select 1 from skep.cursor c
        where c.group_id = i.id and c.available_at is not null limit v_share + 1
      ) c
    ) r
  ) g
  where g.partitions > v_share or g.up_to > p_exact_max;

  return query
  with measured as materialized (
    select s.group_id, sum(s.weight) filter (where s.is_sampled) as partitions,
           sum(s.weight) filter (where b.backlog > 0) as partitions_behind,
           sum(b.backlog * s.weight) as backlog, min(b.oldest_at) as oldest_at
    from (
      select c.*, true as is_sampled from skep.sample_cursors(v_large, v_sample_blocks) c
      where cardinality(v_large) > 0
      union all
      select c.*, true from skep.spread_cursors(
        array(select unnest(v_busy) except select unnest(v_large)), v_sample_partitions) c
      union all
      select i.id, c.partition_id, c.acked, c.done, c.available_at, 1, false
      from unnest(p_group_id) i(id)
      cross join lateral (
        select c.partition_id, c.acked, c.done, c.available_at from skep.cursor c
        where i.id <> all(v_busy) and c.group_id = i.id and c.available_at is not null offset 0
      ) c
    ) s
    left join lateral (
      select l.backlog, o.created_at as oldest_at
      from (
        select p.tail, skep.partition_backlog(p.head, p.tail, s.acked, s.done) as backlog
        from skep.partition p
        -- A group that is not busy is counted, even where its partitions are sampled.
        where p.id = s.partition_id and s.available_at is not null
          and s.is_sampled = (s.group_id = any(v_busy))
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
    group by s.group_id
  )
  select g.id, coalesce(case when g.id = any(v_large) then round(s.partitions)::bigint end,
                        n.partitions),
         coalesce(round(s.partitions_behind)::bigint, 0), coalesce(round(s.backlog)::bigint, 0),
         skep.age_s(s.oldest_at, v_now), skep.age_s(r.ready_since, v_now), h.is_held,
         g.id = any(v_large) or g.id = any(v_busy)
  from unnest(p_group_id) i(id)
  cross join lateral (
    select g.id, g.queue_id from skep.consumer_group g where g.id = i.id offset 0
  ) g
  left join measured s on s.group_id = g.id
  join unnest(v_queue, v_partitions) n(queue_id, partitions) on n.queue_id = g.queue_id
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
        limit v_share
      ) c
      where c.leased is not null
    ) as is_held
  ) h;
end $$;

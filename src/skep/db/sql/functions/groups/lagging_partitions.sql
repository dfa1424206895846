-- lagging_partitions: the partitions whose first unread message is oldest, worst first.
-- Takes   p_group, p_queue: null for any; without p_group only readers count (counts_as_reader).
--         p_lag_s: the minimum age in seconds. p_look_max: roughly how many partitions to look at.
-- Returns total (partitions found), is_partial (some group has more active partitions than were
--         looked at), and per partition; lease_id is null unless leased now. An empty page is one
--         row with only total and is_partial.
-- Why     The index of partitions that are not idle is searched from both ends: unpolled partitions
--         have been ready longest, and partitions blocked by a consumer or a poison message are
--         leased or backing off. The oldest segment is looked up as in measure_backlog.
create function skep.lagging_partitions(
  p_group text, p_queue text, p_lag_s integer, p_look_max integer, p_limit integer,
  p_offset integer)
returns table (
  total bigint, is_partial boolean, group_name text, queue_name text, partition_id bigint,
  partition_name text, lease_id uuid, backlog bigint, oldest_at timestamptz,
  lag_s bigint)
language sql stable as $$
  with clock as materialized (select skep.now() as now),
  asked as materialized (
    select g.id, g.name, q.name as queue_name,
           greatest(p_look_max / (2 * count(*) over ()), 10) as share
    from skep.consumer_group g join skep.queue q on q.id = g.queue_id
    where (g.name = p_group or p_group is null and skep.counts_as_reader(g))
      and (p_queue is null or q.name = p_queue)
  ),
  seen as materialized (
    select a.name as group_name, a.queue_name, a.share, c.*
    from asked a cross join clock k
    cross join lateral (
      (select c.partition_id, c.acked, c.done, false as is_held, null::uuid as lease_id,
              row_number() over (order by c.available_at) as place
       from skep.cursor c
       where c.group_id = a.id and c.available_at <= k.now
       order by c.available_at limit a.share)
      union all
      (select c.partition_id, c.acked, c.done, true,
              case when c.leased is not null then c.lease_id end,
              row_number() over (order by c.available_at desc)
       from skep.cursor c
       where c.group_id = a.id and c.available_at > k.now
       order by c.available_at desc limit a.share)
    ) c
  ),
  found as materialized (
    select s.group_name, s.queue_name, s.partition_id, p.name, s.lease_id, p.backlog, o.oldest_at,
           skep.age_s(o.oldest_at, k.now) as lag_s
    from seen s cross join clock k
    cross join lateral (
      select p.name, p.tail, skep.partition_backlog(p.head, p.tail, s.acked, s.done) as backlog
      from skep.partition p where p.id = s.partition_id offset 0
    ) p
    cross join lateral (
      select o.created_at as oldest_at from skep.segment o
      where p.backlog > 0
        and o.partition_id = s.partition_id and o.first <= greatest(s.acked + 1, p.tail)
      order by o.first desc limit 1
    ) o
    where o.oldest_at <= k.now - make_interval(secs => p_lag_s)
  )
  select t.total, t.is_partial, f.*
  from (
    select (select count(*) from found) as total,
           exists (select 1 from seen s where s.place = s.share) as is_partial
  ) t
  left join (
    select * from found order by oldest_at, partition_id, group_name limit p_limit offset p_offset
  ) f on true
  order by f.oldest_at, f.partition_id, f.group_name;
$$;

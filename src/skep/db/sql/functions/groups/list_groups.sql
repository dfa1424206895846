-- list_groups: consumer groups with their subscriptions, one row per group and queue.
-- Takes   p_group, p_queue: null for any; without p_group only readers count (counts_as_reader).
-- Returns total, and the page by group and queue name; subscribed_from (mode new: when it
--         subscribed); is_held_back (the queue is paused), delay_s (how long the queue keeps
--         messages back); polled_at, progressed_at (see group_activity; also when progress could
--         first be expected), is_failing (messages failed since, none was finished), listed_at (the
--         time). An empty page is one row with only the total.
-- Why     Reads groups and queues, never partitions; measure_backlog measures a page.
create function skep.list_groups(p_group text, p_queue text, p_limit integer, p_offset integer)
returns table (
  total bigint, group_id integer, group_name text, queue_id integer, queue_name text,
  subscription_mode text, subscribed_from timestamptz, created_at timestamptz, is_paused boolean,
  conflation boolean, is_held_back boolean, delay_s integer, lease_s integer,
  polled_at timestamptz, progressed_at timestamptz, is_failing boolean, listed_at timestamptz)
language sql stable as $$
  with found as (
    select g.id, g.name, g.queue_id, q.name as queue_name, g.subscription_mode,
           coalesce(
             g.subscribed_from, case g.subscription_mode when 'new' then g.created_at end
           ) as subscribed_from,
           g.created_at, g.is_paused, coalesce(g.conflation, false) as conflation,
           q.is_paused as is_held_back,
           q.delayed_processing_s + q.window_buffer_s as delay_s, q.lease_time_s, g.first_polled_at
    from skep.consumer_group g join skep.queue q on q.id = g.queue_id
    where (g.name = p_group or p_group is null and skep.counts_as_reader(g))
      and (p_queue is null or q.name = p_queue)
  )
  select t.total, f.id, f.name, f.queue_id, f.queue_name, f.subscription_mode, f.subscribed_from,
         f.created_at, f.is_paused, f.conflation, f.is_held_back, f.delay_s, f.lease_time_s,
         greatest(a.polled_at, f.first_polled_at), p.progressed_at, a.failed_at > p.progressed_at,
         skep.now()
  from (select count(*) as total from found) t
  left join (
    select * from found order by name, queue_name limit p_limit offset p_offset
  ) f on true
  left join skep.group_activity a on a.group_id = f.id
  cross join lateral (
    select greatest(a.progressed_at, a.expected_from, f.first_polled_at) as progressed_at
  ) p
  order by f.name, f.queue_name;
$$;

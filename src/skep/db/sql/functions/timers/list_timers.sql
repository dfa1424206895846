-- list_timers: a page of the timers of a queue.
-- Takes   p_only: this key alone; null for any. p_after: only keys behind it.
-- Returns rows in order of the key, by byte; envelope is null unless p_only is given.
-- Why     The index on (queue, timer key) gives a page without looking at the other timers. One
--         function keeps the columns of both uses the same.
create function skep.list_timers(p_queue text, p_only text, p_after text, p_limit integer)
returns table (
  timer_key text, partition text, transaction_id text, deliver_at timestamptz,
  created_at timestamptz, updated_at timestamptz, envelope bytea)
language sql stable as $$
  select t.*
  from (select q.id from skep.queue q where q.name = p_queue) q
  cross join lateral (
    select s.timer_key, s.partition, s.transaction_id, s.deliver_at, s.created_at,
           coalesce(s.rescheduled_at, s.created_at), case when p_only is not null then s.envelope end
    from skep.scheduled s
    where s.queue_id = q.id and s.timer_key >= coalesce(p_only, '')
      and s.timer_key > coalesce(p_after, '') and (p_only is null or s.timer_key = p_only)
    order by s.timer_key limit p_limit
  ) t(timer_key, partition, transaction_id, deliver_at, created_at, updated_at, envelope);
$$;

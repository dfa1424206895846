-- gather_lags: store the lag of groups in some hours.
-- Takes   whole hours, p_upto exclusive. p_limit: groups per hour, furthest behind first.
-- Returns how many rows were stored.
-- Locks   the rows written.
-- Why     Samples by minute are kept for two days. An hour with fewer samples than stored is being
--         purged, and is ignored.
create function skep.gather_lags(
  p_since timestamptz, p_upto timestamptz, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_stored bigint;
begin
  insert into skep.analytics_lag as t
  select s.hour, s.queue, s.group_name, s.samples, s.backlog_mean, s.backlog_max, s.lag_s_mean,
         s.lag_s_max
  from (
    select date_trunc('hour', m.at, 'UTC') as hour, q.name as queue, g.name as group_name,
           count(*) as samples, avg(m.backlog)::double precision as backlog_mean,
           max(m.backlog) as backlog_max, avg(m.lag_s)::double precision as lag_s_mean,
           max(m.lag_s) as lag_s_max,
           row_number() over (
             partition by date_trunc('hour', m.at, 'UTC')
             order by max(m.lag_s) desc, max(m.backlog) desc, g.id) as place
    from skep.group_minute m
    join skep.consumer_group g on g.id = m.group_id
    join skep.queue q on q.id = g.queue_id
    where m.at >= p_since and m.at < p_upto
    group by 1, q.name, g.id, g.name
  ) s
  where s.place <= p_limit
  on conflict (hour, queue, group_name) do update
    set samples = excluded.samples, backlog_mean = excluded.backlog_mean,
        backlog_max = excluded.backlog_max, lag_s_mean = excluded.lag_s_mean,
        lag_s_max = excluded.lag_s_max
    where excluded.samples >= t.samples;
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;

-- list_lags: lags of groups by hour.
-- Takes   as list_hot_keys; p_after: {queue, group}.
-- Returns rows of analytics_lag by (hour, queue, group_name).
-- Why     As list_hot_keys.
create function skep.list_lags(
  p_since timestamptz, p_upto timestamptz, p_queue text, p_after text[], p_limit integer)
returns setof skep.analytics_lag
language sql stable as $$
  select t.* from skep.analytics_lag t
  where t.hour >= p_since and t.hour < p_upto and (p_queue is null or t.queue = p_queue)
    and (p_after is null
         or (t.hour, t.queue, t.group_name) > (p_since, p_after[1], p_after[2]))
  order by t.hour, t.queue, t.group_name
  limit p_limit;
$$;

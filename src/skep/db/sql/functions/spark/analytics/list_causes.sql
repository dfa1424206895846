-- list_causes: causes of dead letters by hour.
-- Takes   as list_hot_keys; p_after: {queue, group, cause}.
-- Returns rows of analytics_letter by (hour, queue, group_name, cause).
-- Why     As list_hot_keys.
create function skep.list_causes(
  p_since timestamptz, p_upto timestamptz, p_queue text, p_after text[], p_limit integer)
returns setof skep.analytics_letter
language sql stable as $$
  select t.* from skep.analytics_letter t
  where t.hour >= p_since and t.hour < p_upto and (p_queue is null or t.queue = p_queue)
    and (p_after is null
         or (t.hour, t.queue, t.group_name, t.cause)
          > (p_since, p_after[1], p_after[2], p_after[3]))
  order by t.hour, t.queue, t.group_name, t.cause
  limit p_limit;
$$;

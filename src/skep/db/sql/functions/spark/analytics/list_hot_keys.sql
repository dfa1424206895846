-- list_hot_keys: the busiest keys of queues by hour.
-- Takes   hours, p_upto exclusive. p_queue: null for all. p_after: {queue, kind, key}, the last row
--         of the previous page in the hour p_since; null to begin.
-- Returns rows of analytics_key by (hour, queue, kind, key).
-- Why     In primary key order, so that a page costs what it shows.
create function skep.list_hot_keys(
  p_since timestamptz, p_upto timestamptz, p_queue text, p_after text[], p_limit integer)
returns setof skep.analytics_key
language sql stable as $$
  select t.* from skep.analytics_key t
  where t.hour >= p_since and t.hour < p_upto and (p_queue is null or t.queue = p_queue)
    and (p_after is null
         or (t.hour, t.queue, t.kind, t.key) > (p_since, p_after[1], p_after[2], p_after[3]))
  order by t.hour, t.queue, t.kind, t.key
  limit p_limit;
$$;

-- store_volume: store what Spark found in the log, by hour and queue.
-- Takes   p_volume: an array of objects with the columns of analytics_volume. p_keys: the same for
--         analytics_key, for queues and hours of p_volume.
-- Returns how many rows were stored.
-- Locks   the rows written and deleted.
-- Why     A past hour of the log only loses messages, except for a few late commits. So a row with
--         fewer messages than stored comes from a log that lost some and is ignored; otherwise it
--         replaces the stored one, with its keys of the kinds in p_keys.
create function skep.store_volume(p_volume json, p_keys json) returns bigint
language plpgsql as $$
declare
  v_hour timestamptz[];
  v_queue text[];
begin
  with stored as (
    insert into skep.analytics_volume as v
    select n.* from json_populate_recordset(null::skep.analytics_volume, p_volume) n
    on conflict (hour, queue) do update
      set messages = excluded.messages, bytes = excluded.bytes, partitions = excluded.partitions,
          busiest_messages = excluded.busiest_messages
      where excluded.messages >= v.messages
    returning v.hour, v.queue
  )
  select array_agg(s.hour), array_agg(s.queue) into v_hour, v_queue from stored s;

  delete from skep.analytics_key k using unnest(v_hour, v_queue) f(hour, queue)
  where k.hour = f.hour and k.queue = f.queue
    and k.kind in (
      select n.kind from json_populate_recordset(null::skep.analytics_key, p_keys) n);
  insert into skep.analytics_key
  select n.* from json_populate_recordset(null::skep.analytics_key, p_keys) n
  join unnest(v_hour, v_queue) f(hour, queue) on f.hour = n.hour and f.queue = n.queue;
  return coalesce(cardinality(v_hour), 0);
end $$;

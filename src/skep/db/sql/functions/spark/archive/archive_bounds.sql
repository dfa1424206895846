-- archive_bounds: up to where queues are archived.
-- Returns per queue: queue_id; upto: messages of earlier transactions are in the lake (1 if there
--         are none); is_foreign as archive_work.
-- Why     Where a reader of both tiers switches from one to the other.
create function skep.archive_bounds(p_queue_id integer[])
returns table (queue_id integer, upto bigint, is_foreign boolean)
language sql stable as $$
  select i.id, coalesce(a.upto::text::bigint, 1),
         coalesce(a.system <> skep.system_identity(), false)
  from unnest(p_queue_id) i(id)
  left join skep.archive a on a.queue_id = i.id
  order by i.id;
$$;

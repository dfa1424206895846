-- show_queue: the options of a queue.
-- Returns one row as configure_queue, none if there is no such queue; default_partition_id is null
--         if it has no partition Default.
-- Why     Reading the configuration must not create the queue.
create function skep.show_queue(p_name text)
returns table (queue json, default_partition_id bigint)
language sql stable as $$
  select to_json(q), p.id
  from skep.queue q
  left join skep.partition p on p.queue_id = q.id and p.name = 'Default'
  where q.name = p_name;
$$;

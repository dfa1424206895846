/*
show_queue: all options of a queue.

Takes   p_name.
Returns one row as configure_queue, or none when there is no such queue. default_partition_id is
        null when the queue has no partition 'Default'.
Locks   none.
Why     Asking for the configuration must not create what is asked for.
*/
create function skep.show_queue(p_name text)
returns table (queue json, default_partition_id bigint)
language sql stable as $$
  select to_json(q), p.id
  from skep.queue q
  left join skep.partition p on p.queue_id = q.id and p.name = 'Default'
  where q.name = p_name;
$$;

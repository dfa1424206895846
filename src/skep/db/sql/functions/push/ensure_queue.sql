/*
ensure_queue: find a queue by name, or create it with the defaults an unconfigured queue has.

Takes   p_name.
Returns the queue's id.
Locks   none that outlive an existing queue's look-up; a new row is invisible until commit.
Why     Queues come into being by the first push or the first poll. Namespace and task are the
        first two dotted parts of the name, as Queen's clients expect. The group of queue mode
        exists from the start, so that every partition gets its cursor when it is created; but
        nobody has polled for it yet.
*/
create function skep.ensure_queue(p_name text) returns integer
language plpgsql as $$
declare
  v_id integer;
begin
  select q.id into v_id from skep.queue q where q.name = p_name;
  if found then
    return v_id;
  end if;
  insert into skep.queue (name, namespace, task)
  values (p_name, split_part(p_name, '.', 1), split_part(p_name, '.', 2))
  on conflict (name) do nothing
  returning id into v_id;
  if v_id is null then
    -- Someone else created it at the same moment; the conflict waited for their commit.
    select q.id into strict v_id from skep.queue q where q.name = p_name;
    return v_id;
  end if;
  insert into skep.consumer_group (queue_id, name, subscription_mode, first_polled_at)
  values (v_id, '__QUEUE_MODE__', 'all', null);
  return v_id;
end $$;

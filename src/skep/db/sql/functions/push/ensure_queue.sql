-- ensure_queue: find a queue by name, or create it with default options.
-- Takes   p_namespace, p_task: of a new queue; null: by its name.
-- Returns the queue's id.
-- Locks   none for an existing queue; a new row is invisible until commit.
-- Why     The first push or poll creates a queue. Namespace and task are the first two dotted parts
--         of the name, as Queen's clients expect. The default group exists from the start, so that
--         every new partition gets its cursor, but counts as unpolled.
create function skep.ensure_queue(
  p_name text, p_namespace text default null, p_task text default null) returns integer
language plpgsql as $$
declare
  v_id integer;
begin
  select q.id into v_id from skep.queue q where q.name = p_name;
  if found then
    return v_id;
  end if;
  insert into skep.queue (name, namespace, task)
  values (p_name, coalesce(p_namespace, split_part(p_name, '.', 1)),
          coalesce(p_task, split_part(p_name, '.', 2)))
  on conflict (name) do nothing
  returning id into v_id;
  if v_id is null then
    -- A concurrent call created it; the conflict waited for its commit.
    select q.id into strict v_id from skep.queue q where q.name = p_name;
    return v_id;
  end if;
  insert into skep.consumer_group (queue_id, name, subscription_mode, first_polled_at)
  values (v_id, '__QUEUE_MODE__', 'all', null);
  return v_id;
end $$;

-- refuse_governed: refuse a push by SQL into queues whose rules only brokers can follow.
-- Raises  SK403 for a queue that encrypts, validates or limits its messages.
-- Locks   none.
-- Why     SQL has neither the encryption keys nor a JSON Schema validator, and measures nothing.
create function skep.refuse_governed(p_partition_id bigint[]) returns void
language plpgsql stable as $$
declare
  v_queue text;
begin
  select q.name into v_queue
  from unnest(p_partition_id) l(id)
  cross join lateral (
    select p.queue_id from skep.partition p where p.id = l.id offset 0
  ) p
  cross join lateral (
    select q.name, q.encryption_enabled or q.json_schema is not null or q.max_size > 0
             as is_governed
    from skep.queue q where q.id = p.queue_id offset 0
  ) q
  where q.is_governed limit 1;
  if found then
    raise exception using errcode = 'SK403',
      message = format('queue %s encrypts, validates or limits its messages: use skep.stage',
                       v_queue);
  end if;
end $$;

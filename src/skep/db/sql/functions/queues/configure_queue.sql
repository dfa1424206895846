-- configure_queue: create a queue or change some of its options.
-- Takes   p_namespace, p_task: null leaves them; p_options: json object of columns to change.
-- Returns one row: the queue after the change, and the id of its partition Default.
-- Locks   the skep.queue row for no key update, then as provision_partitions and wake_held.
-- Why     It merges: setting one option must not reset the others. The broker sends defaults as
--         values. The version grows with every call, which invalidates cached options. json, not
--         jsonb, which would write out 1e9999 in a schema as ten thousand digits.
create function skep.configure_queue(
  p_name text, p_namespace text, p_task text, p_options json)
returns table (queue json, default_partition_id bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_queue skep.queue;
  v_changed skep.queue;
begin
  perform 1 from skep.queue q where q.name = p_name;
  if not found then
    perform skep.ensure_queue(p_name);
    update skep.queue set namespace = '', task = '' where name = p_name;
  end if;
  select * into strict v_queue from skep.queue q where q.name = p_name for no key update;
  v_changed := json_populate_record(v_queue, p_options);

  update skep.queue q
  set namespace = coalesce(p_namespace, q.namespace),
      task = coalesce(p_task, q.task),
      priority = v_changed.priority,
      lease_time_s = v_changed.lease_time_s,
      retry_limit = v_changed.retry_limit,
      retry_delay_ms = v_changed.retry_delay_ms,
      max_size = v_changed.max_size,
      ttl_s = v_changed.ttl_s,
      dead_letter_queue = v_changed.dead_letter_queue,
      dlq_after_max_retries = v_changed.dlq_after_max_retries,
      delayed_processing_s = v_changed.delayed_processing_s,
      window_buffer_s = v_changed.window_buffer_s,
      retention_s = v_changed.retention_s,
      completed_retention_s = v_changed.completed_retention_s,
      retention_enabled = v_changed.retention_enabled,
      encryption_enabled = v_changed.encryption_enabled,
      max_wait_time_s = v_changed.max_wait_time_s,
      dedup_window_s = v_changed.dedup_window_s,
      max_deliveries = v_changed.max_deliveries,
      retry_delay_ms_max = v_changed.retry_delay_ms_max,
      ack_mode = v_changed.ack_mode,
      overflow = v_changed.overflow,
      json_schema = v_changed.json_schema,
      archive_after_s = v_changed.archive_after_s,
      archive_before_delete = v_changed.archive_before_delete,
      lake_table = v_changed.lake_table,
      deferral = v_changed.deferral,
      is_strict = v_changed.is_strict,
      version = q.version + 1,
      updated_at = skep.now()
  where q.id = v_queue.id
  returning * into v_changed;

  if v_changed.delayed_processing_s < v_queue.delayed_processing_s
     or v_changed.window_buffer_s < v_queue.window_buffer_s then
    perform skep.wake_held(v_queue.id);
  end if;
  return query
  select to_json(v_changed), p.partition_id
  from skep.provision_partitions(array[p_name], array['Default']) p;
end $$;

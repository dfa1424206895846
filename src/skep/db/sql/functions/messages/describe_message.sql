-- describe_message: everything known about one message.
-- Returns one row, none if there is no such message: its standing as message_standing, error and
--         failures of its newest dead letter, the options of its queue that apply to it, and
--         groups: a JSON array of name, consumed and leaseExpiresAt per group, by
--         message_deliveries.
-- Why     The envelope comes from the log or, after retention, from a dead letter.
create function skep.describe_message(p_partition_id bigint, p_offset bigint)
returns table (
  queue_name text, partition_name text, namespace text, task text, created_at timestamptz,
  envelope text, status text, queue_status text, consumed_by integer, total_groups integer,
  lease_until timestamptz, error text, failures integer, lease_time_s integer,
  retry_limit integer, retry_delay_ms integer, ttl_s integer, priority integer, groups json)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  with letter as materialized (
    select d.envelope::text as envelope, d.created_at, d.error, d.failures
    from skep.dead_letter d
    where d.partition_id = p_partition_id and d.message_offset = p_offset
    order by d.failed_at desc limit 1
  ),
  logged as materialized (
    select s.created_at, skep.read_envelope(p_partition_id, p_offset) as envelope
    from skep.segment s
    where s.partition_id = p_partition_id and s.first <= p_offset
    order by s.first desc limit 1
  )
  select q.name, p.name, q.namespace, q.task, coalesce(l.created_at, d.created_at),
         coalesce(l.envelope, d.envelope), s.status, s.queue_status, s.consumed_by,
         s.total_groups, s.lease_until, d.error, d.failures, q.lease_time_s, q.retry_limit,
         q.retry_delay_ms, q.ttl_s, q.priority,
         (select json_agg(json_build_object(
                   'name', g.group_name, 'consumed', g.state = 'done',
                   'leaseExpiresAt', case when g.state = 'leased' then g.until end)
                 order by g.group_name)
          from skep.message_deliveries(p_partition_id, p_offset, v_now) g)
  from skep.partition p
  join skep.queue q on q.id = p.queue_id
  left join logged l on l.envelope is not null
  left join letter d on true
  cross join lateral skep.message_standing(p.id, p_offset, p_offset, v_now) s
  where p.id = p_partition_id and (l.envelope is not null or d.envelope is not null);
end $$;

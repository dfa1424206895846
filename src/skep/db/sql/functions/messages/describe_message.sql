-- describe_message: everything known about one message.
-- Returns one row, none if there is no such message: the names around it, created_at, envelope, its
--         standing as message_standing, error and failures of its newest dead letter, the options
--         of its queue that apply to it, and groups: a JSON array of name, consumed and
--         leaseExpiresAt per group.
-- Locks   none.
-- Why     The envelope comes from the log or, after retention, from a dead letter. A deleted
--         message does not exist.
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
    select s.created_at, e.envelope::text as envelope
    from (
      select s.first, s.last, s.created_at, s.body from skep.segment s
      where s.partition_id = p_partition_id and s.first <= p_offset
      order by s.first desc limit 1
    ) s
    cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
      with ordinality e(envelope, position)
    where e.position = p_offset - s.first + 1 and json_typeof(e.envelope) = 'object'
  )
  select q.name, p.name, q.namespace, q.task, coalesce(l.created_at, d.created_at),
         coalesce(l.envelope, d.envelope), s.status, s.queue_status, s.consumed_by,
         s.total_groups, s.lease_until, d.error, d.failures, q.lease_time_s, q.retry_limit,
         q.retry_delay_ms, q.ttl_s, q.priority,
         (select json_agg(json_build_object(
                   'name', g.name,
                   'consumed', p_offset <= c.acked or coalesce(c.done, '{}') @> p_offset,
                   'leaseExpiresAt', case
                     when c.leased >= p_offset and c.acked < p_offset and c.available_at > v_now
                     then c.available_at end) order by g.name)
          from skep.cursor c join skep.consumer_group g on g.id = c.group_id
          where c.partition_id = p_partition_id
            and (g.name <> '__QUEUE_MODE__' or s.queue_status is not null))
  from skep.partition p
  join skep.queue q on q.id = p.queue_id
  left join logged l on true
  left join letter d on true
  cross join lateral skep.message_standing(p.id, p_offset, p_offset, v_now) s
  where p.id = p_partition_id and (l.envelope is not null or d.envelope is not null);
end $$;

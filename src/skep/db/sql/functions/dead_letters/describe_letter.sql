-- describe_letter: one dead letter, or the record of one that was redriven.
-- Returns a redriven letter has redriven_at and its new address instead of the envelope.
-- Why     For a letter that is gone, the answer says where its message went.
create function skep.describe_letter(p_id bigint)
returns table (
  id bigint, partition_id bigint, message_offset bigint, queue_name text, partition_name text,
  group_name text, transaction_id text, error text, failures integer, created_at timestamptz,
  failed_at timestamptz, envelope json, redriven_at timestamptz, to_partition_id bigint,
  to_offset bigint)
language sql stable as $$
  select d.id, d.partition_id, d.message_offset, q.name, p.name, g.name, d.transaction_id,
         d.error, d.failures, d.created_at, d.failed_at, d.envelope, d.redriven_at,
         d.to_partition_id, d.to_offset
  from (
    select l.id, l.partition_id, l.message_offset, l.queue_id, l.group_id, l.transaction_id,
           l.error, l.failures, l.created_at, l.failed_at, l.envelope,
           null::timestamptz as redriven_at, null::bigint as to_partition_id,
           null::bigint as to_offset
    from skep.dead_letter l where l.id = p_id
    union all
    select r.id, r.partition_id, r.message_offset, r.queue_id, r.group_id, r.transaction_id,
           r.error, r.failures, r.created_at, r.failed_at, null::json,
           r.redriven_at, r.to_partition_id, r.to_offset
    from skep.redriven_letter r where r.id = p_id
  ) d
  left join skep.queue q on q.id = d.queue_id
  left join skep.partition p on p.id = d.partition_id
  left join skep.consumer_group g on g.id = d.group_id;
$$;

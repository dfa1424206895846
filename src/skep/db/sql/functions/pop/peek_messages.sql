-- peek_messages: the messages a group would get next, without claiming them.
-- Takes   p_partition: null for any.
-- Returns by partition, longest waiting first, then by offset.
-- Raises  SK404 if the group does not exist.
-- Locks   none.
-- Why     Leased messages are skipped; delays and back-offs are ignored: the question is what comes
--         next, not when. At most a thousand partitions are read.
create function skep.peek_messages(
  p_queue text, p_partition text, p_group text, p_limit integer)
returns table (
  partition_id bigint, partition_name text, message_offset bigint, created_at timestamptz,
  envelope text)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_queue_id integer;
  v_group_id integer;
  v_partition record;
  v_wanted integer := p_limit;
  v_count integer;
begin
  select g.queue_id, g.id into v_queue_id, v_group_id
  from skep.queue q join skep.consumer_group g on g.queue_id = q.id and g.name = p_group
  where q.name = p_queue;
  if not found then
    raise exception using errcode = 'SK404', message = 'the consumer group does not exist';
  end if;

  for v_partition in
    select p.id, p.name, coalesce(c.done, '{}') as done,
           greatest(c.acked, p.tail - 1,
                    case when c.available_at > v_now then c.leased end) as position
    from (
      (select c.* from skep.cursor c
       where p_partition is null and c.group_id = v_group_id and c.available_at is not null
       order by c.available_at limit 1000)
      union all
      (select c.* from skep.partition p
       join skep.cursor c on c.partition_id = p.id and c.group_id = v_group_id
       where p.queue_id = v_queue_id and p.name = p_partition and c.available_at is not null)
    ) c
    cross join lateral (
      select p.id, p.name, p.tail from skep.partition p where p.id = c.partition_id offset 0
    ) p
    order by c.available_at
  loop
    return query
    select v_partition.id, v_partition.name, m.at, m.created_at, m.envelope
    from (
      select s.first + e.position - 1 as at, s.created_at, e.envelope::text as envelope,
             json_typeof(e.envelope) as kind
      from (
        select s.first, s.created_at, s.body from skep.segment s
        where s.partition_id = v_partition.id and s.last > v_partition.position
          and s.first >= coalesce(
            (select b.first from skep.segment b
             where b.partition_id = v_partition.id and b.first <= v_partition.position + 1
             order by b.first desc limit 1), v_partition.position + 1)
        order by s.first limit v_wanted
      ) s
      cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
        with ordinality e(envelope, position)
    ) m
    where m.at > v_partition.position and m.kind = 'object' and not v_partition.done @> m.at
    order by m.at limit v_wanted;
    get diagnostics v_count = row_count;
    v_wanted := v_wanted - v_count;
    exit when v_wanted <= 0;
  end loop;
end $$;

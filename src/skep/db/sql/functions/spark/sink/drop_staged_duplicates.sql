-- drop_staged_duplicates: remove duplicates from staged segments.
-- Takes   the staging, and partitions as staged_partitions returns them. p_findings: of the driver,
--         {partitions, duplicates}: as checked_partitions takes them, and {attempt, number,
--         indexes}; null if there are none.
-- Returns how many messages were removed.
-- Locks   none beyond the staged rows; the caller holds the partitions.
-- Why     The driver compares keys a hundred times as fast, and before anything is locked. Its
--         findings count where they still hold; only other partitions, and messages pushed since,
--         are compared here.
create function skep.drop_staged_duplicates(
  p_write_id text, p_epoch bigint, p_attempt bigint[],
  p_partition_id bigint[], p_queue text[], p_partition text[], p_window_s integer[],
  p_now timestamptz, p_findings json default null)
returns bigint
language plpgsql
set enable_hashjoin = on
set enable_nestloop = off
as $$
declare
  v_count bigint := 0;
  v_segment record;
begin
  if not exists (
    select from skep.staged_segment s
    where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
      and not s.is_unique
  ) then
    return 0;
  end if;
  for v_segment in
    with target as materialized (
      select c.* from skep.checked_partitions(
        p_partition_id, p_queue, p_partition, p_window_s, p_findings -> 'partitions', p_now) c
    ),
    uncompared as materialized (
      select array_agg(l.id) as id, array_agg(l.queue) as queue,
             array_agg(l.partition) as partition, array_agg(l.upto) as upto,
             array_agg(l.is_checked) as is_checked
      from target l where l.head > l.upto or not l.is_checked
    ),
    found as (
      select d.attempt, d.number, d.indexes
      from json_to_recordset(p_findings -> 'duplicates')
             d(attempt bigint, number integer, indexes integer[])
      join skep.staged_segment s on s.attempt = d.attempt and s.number = d.number
      join target l on l.queue = s.queue and l.partition = s.partition and l.is_checked
      where s.write_id = p_write_id and s.epoch = p_epoch
      union all
      select d.attempt, d.number, d.indexes
      from uncompared u
      cross join lateral skep.find_staged_duplicates(
        p_write_id, p_epoch, p_attempt, u.id, u.queue, u.partition, u.upto, u.is_checked) d
    )
    select s.task, s.attempt, s.number, s.messages, array_agg(distinct i.index) as indexes
    from found f
    cross join lateral unnest(f.indexes) i(index)
    join skep.staged_segment s on s.attempt = f.attempt and s.number = f.number
    where s.write_id = p_write_id and s.epoch = p_epoch
    group by s.task, s.attempt, s.number, s.messages
  loop
    v_count := v_count + cardinality(v_segment.indexes);
    if cardinality(v_segment.indexes) = v_segment.messages then
      delete from skep.segment b
      where b.partition_id = -v_segment.attempt and b.first = v_segment.number;
      delete from skep.staged_segment s
      where s.write_id = p_write_id and s.epoch = p_epoch and s.task = v_segment.task
        and s.attempt = v_segment.attempt and s.number = v_segment.number;
      continue;
    end if;
    update skep.segment b set (keys, body) = (
      select string_agg(substr(b.keys, e.position::integer * 16 - 15, 16), ''::bytea
                        order by e.position),
             convert_to('[' || string_agg(e.envelope::text, ',' order by e.position) || ']',
                        'UTF8')
      from json_array_elements(convert_from(b.body, 'UTF8')::json)
             with ordinality e(envelope, position)
      where e.position - 1 <> all(v_segment.indexes))
    where b.partition_id = -v_segment.attempt and b.first = v_segment.number;
    update skep.staged_segment s set messages = s.messages - cardinality(v_segment.indexes)
    where s.write_id = p_write_id and s.epoch = p_epoch and s.task = v_segment.task
      and s.attempt = v_segment.attempt and s.number = v_segment.number;
  end loop;
  return v_count;
end $$;

-- delete_message: delete one message for all groups.
-- Returns deleted, already (it had been) or unknown.
-- Locks   the skep.queue row for share, against new groups; the skep.partition row for no key
--         update; the segment; its skep.cursor rows in group order; dead letters of the message.
-- Why     Offsets never move: the message becomes a null in its segment, and cursors before it skip
--         it. Its dead letters, which are copies, go too. The key stays: a repeated push must not
--         bring the message back.
create function skep.delete_message(p_partition_id bigint, p_offset bigint) returns text
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_first bigint;
begin
  perform 1 from skep.queue q
  where q.id = (select p.queue_id from skep.partition p where p.id = p_partition_id) for share;
  perform 1 from skep.partition p where p.id = p_partition_id for no key update;
  perform 1 from skep.deleted_message m
  where m.partition_id = p_partition_id and m.message_offset = p_offset;
  if found then
    return 'already';
  end if;

  select s.first into v_first
  from (
    select s.first, s.last from skep.segment s
    where s.partition_id = p_partition_id and s.first <= p_offset
    order by s.first desc limit 1
  ) s
  where s.last >= p_offset;
  if v_first is null then
    delete from skep.dead_letter d
    where d.partition_id = p_partition_id and d.message_offset = p_offset;
    return case when found then 'deleted' else 'unknown' end;
  end if;

  update skep.segment s
  set body = convert_to(
    (select '[' || string_agg(
              case when e.position = p_offset - s.first + 1 then 'null' else e.envelope::text end,
              ',' order by e.position) || ']'
     from json_array_elements(convert_from(s.body, 'UTF8')::json)
       with ordinality e(envelope, position)), 'UTF8')
  where s.partition_id = p_partition_id and s.first = v_first;
  insert into skep.deleted_message (partition_id, message_offset, deleted_at)
  values (p_partition_id, p_offset, v_now);

  perform 1 from skep.cursor c
  where c.partition_id = p_partition_id order by c.group_id for no key update;
  perform skep.pass_cursors(
    p_partition_id,
    array(select c.group_id from skep.cursor c where c.partition_id = p_partition_id),
    p_offset, p_offset, v_now);
  delete from skep.dead_letter d
  where d.partition_id = p_partition_id and d.message_offset = p_offset;
  return 'deleted';
end $$;

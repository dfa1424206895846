-- letters_of_message: the dead letters of a message, newest failure first.
-- Takes   p_group: null for all.
-- Returns by failed_at, newest first.
-- Why     A message has one letter for each group that gave up on it.
create function skep.letters_of_message(p_partition_id bigint, p_offset bigint, p_group text)
returns table (id bigint, group_name text)
language sql stable as $$
  select d.id, g.name
  from skep.dead_letter d join skep.consumer_group g on g.id = d.group_id
  where d.partition_id = p_partition_id and d.message_offset = p_offset
    and (p_group is null or g.name = p_group)
  order by d.failed_at desc, d.id desc;
$$;

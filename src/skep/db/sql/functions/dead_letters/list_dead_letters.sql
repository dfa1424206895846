-- list_dead_letters: a page of the dead letters that match a filter, newest failure first.
-- Takes   the filter of matching_letters.
-- Returns per letter, with the address of its message and the names around it.
-- Why     Names are looked up for the page only. A custom plan, because each part of the filter has
--         its own index. A partition that was removed since has no name.
create function skep.list_dead_letters(
  p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
  p_error text, p_ids bigint[], p_limit integer, p_offset bigint)
returns table (
  id bigint, partition_id bigint, message_offset bigint, queue_name text, partition_name text,
  group_name text, transaction_id text, error text, failures integer, created_at timestamptz,
  failed_at timestamptz, envelope json)
language plpgsql stable
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
  return query
  select d.id, d.partition_id, d.message_offset, q.name, p.name, g.name, d.transaction_id,
         d.error, d.failures, d.created_at, d.failed_at, d.envelope
  from (
    select m.* from skep.matching_letters(
      p_queue, p_group, p_partition, p_from, p_to, p_error, p_ids) m
    order by m.failed_at desc, m.id desc
    limit p_limit offset p_offset
  ) d
  left join skep.queue q on q.id = d.queue_id
  left join skep.partition p on p.id = d.partition_id
  left join skep.consumer_group g on g.id = d.group_id
  order by d.failed_at desc, d.id desc;
end $$;

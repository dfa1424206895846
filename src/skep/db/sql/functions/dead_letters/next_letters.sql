-- next_letters: the next letters of a redrive.
-- Takes   the filter of matching_letters; ids in (p_after, p_upto].
-- Returns by id; partition_name is null if the partition is gone.
-- Locks   none: redrive_letters decides under locks what moves.
-- Why     By id, not by time: the walk can stop anywhere and resume.
create function skep.next_letters(
  p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
  p_error text, p_ids bigint[], p_after bigint, p_upto bigint, p_limit integer)
returns table (id bigint, queue_name text, partition_name text, envelope json)
language plpgsql stable
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
  return query
  select d.id, q.name, p.name, d.envelope
  from (
    select m.* from skep.matching_letters(
      p_queue, p_group, p_partition, p_from, p_to, p_error, p_ids) m
    where m.id > p_after and m.id <= p_upto
    order by m.id limit p_limit
  ) d
  join skep.queue q on q.id = d.queue_id
  left join skep.partition p on p.id = d.partition_id
  order by d.id;
end $$;

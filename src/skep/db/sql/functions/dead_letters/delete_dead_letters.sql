-- delete_dead_letters: delete dead letters that match a filter.
-- Returns how many were deleted; fewer than p_limit: none is left.
-- Locks   skep.dead_letter rows for update, in id order.
-- Why     Only the letters go: the message itself belongs to all groups of its queue. Bounded, so
--         that a million are deleted in short transactions.
create function skep.delete_dead_letters(
  p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
  p_error text, p_ids bigint[], p_limit integer) returns integer
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ids bigint[];
  v_count integer;
begin
  select array_agg(m.id) into v_ids
  from (
    select m.id from skep.matching_letters(
      p_queue, p_group, p_partition, p_from, p_to, p_error, p_ids) m
    order by m.id limit p_limit
  ) m;
  delete from skep.dead_letter d
  where d.id in (
    select l.id from skep.dead_letter l where l.id = any(v_ids) order by l.id for update
  );
  get diagnostics v_count = row_count;
  return v_count;
end $$;

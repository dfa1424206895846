-- count_dead_letters: count the dead letters that match a filter, up to a bound.
-- Returns the number, or p_bound + 1 if there are more.
-- Why     A page of a listing must not cost in proportion to what it does not show.
create function skep.count_dead_letters(
  p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
  p_error text, p_ids bigint[], p_bound bigint) returns bigint
language plpgsql stable
set plan_cache_mode = force_custom_plan
as $$
begin
  return (
    select count(*)
    from (
      select 1 from skep.matching_letters(
        p_queue, p_group, p_partition, p_from, p_to, p_error, p_ids)
      limit p_bound + 1
    ) counted
  );
end $$;

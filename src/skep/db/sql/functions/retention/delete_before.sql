-- delete_before: delete some old rows of a table.
-- Takes   p_condition: SQL for the alias o, with p_before as $1 and an order, oldest first.
-- Returns how many were deleted.
-- Locks   the deleted rows, skipping locked ones.
-- Why     Tables of records are purged in small steps, all in the same way.
create function skep.delete_before(
  p_table text, p_condition text, p_before timestamptz, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_count bigint;
begin
  execute format(
    'delete from skep.%1$I t where t.ctid = any(array(
       select o.ctid from skep.%1$I o where %2$s limit $2 for update skip locked))',
    p_table, p_condition)
  using p_before, p_limit;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

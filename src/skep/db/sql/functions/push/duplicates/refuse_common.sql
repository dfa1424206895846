-- refuse_common: undo a push if it has a key in common with a stored segment.
-- Takes   the partition; the keys of the push and those of the segment.
-- Returns true, so that it can stand in a condition.
-- Raises  SK410 if there is a common key.
-- Locks   none.
-- Model   Push!Refuse
-- Why     push_contested stores before it compares. A hash join costs 0.3 us per key, and it counts:
--         for `exists` the planner expects an early hit and takes a nested loop. The partition is
--         named for the log only: push_segments finds every duplicate of the call.
create function skep.refuse_common(p_partition_id bigint, p_keys bytea, p_stored bytea)
returns boolean
language plpgsql
set enable_hashjoin = on
as $$
declare
  v_common bigint;
begin
  select count(*) into v_common
  from (
    select substr(p_keys, g * 16 + 1, 16) as key from generate_series(0, length(p_keys) / 16 - 1) g
  ) n
  join (
    select substr(p_stored, g * 16 + 1, 16) as key
    from generate_series(0, length(p_stored) / 16 - 1) g
  ) s on s.key = n.key;
  if v_common > 0 then
    raise exception using errcode = 'SK410',
      message = format('a key is already stored in partition %s', p_partition_id);
  end if;
  return true;
end $$;

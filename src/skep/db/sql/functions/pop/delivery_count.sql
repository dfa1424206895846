-- delivery_count: how often a message was delivered to a group.
-- Takes   p_delivered, p_deliveries, p_steps: of its cursor. p_offset: above acked.
-- Returns the number of claims under lease that covered it; in a conflating group, that delivered
--         it since a newer one was delivered.
-- Locks   none.
-- Why     See shift_deliveries. Claims that were acknowledged on delivery do not count.
create function skep.delivery_count(
  p_delivered bigint, p_deliveries integer, p_steps bigint[], p_offset bigint) returns integer
language sql immutable as $$
  select case
    when p_offset > p_delivered then 0
    when p_steps is null then p_deliveries
    else (
      select p_steps[i * 2]::integer from generate_series(1, cardinality(p_steps) / 2) i
      where p_steps[i * 2 - 1] >= p_offset order by i limit 1)
  end;
$$;

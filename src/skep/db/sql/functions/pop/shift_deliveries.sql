-- shift_deliveries: count a claim, or take one back.
-- Takes   p_delivered, p_deliveries, p_steps: of the cursor. p_acked: its position. p_from, p_upto:
--         the claim delivers (p_from, p_upto]; p_from is above p_acked only in a conflating group.
--         p_by: 1 or -1.
-- Returns one row: the columns as they become.
-- Locks   none.
-- Why     A claim gives out everything behind the cursor up to its end. So the deliveries of the
--         messages to come are a falling staircase, and one number says it all unless claims ended
--         at different offsets. Then the steps are kept, sparse: their number is bounded by the
--         different ends of claims since the cursor last passed them, not by the messages. A
--         conflating group may claim a new end with every push and pass none; so the deliveries of
--         messages that a newer one stands for are forgotten, and a first step of 0 tells them.
create function skep.shift_deliveries(
  p_delivered bigint, p_deliveries integer, p_steps bigint[], p_acked bigint, p_from bigint,
  p_upto bigint, p_by integer)
returns table (delivered bigint, deliveries integer, steps bigint[])
language sql immutable as $$
  with counted as (
    select e.at, case when e.at <= p_from then 0 else greatest(
             skep.delivery_count(p_delivered, p_deliveries, p_steps, e.at)
               + case when e.at <= p_upto then p_by else 0 end, 0) end as count
    from (
      select p_steps[i * 2 - 1] as at from generate_series(1, cardinality(p_steps) / 2) i
      union select p_delivered
      union select p_from
      union select p_upto
    ) e
    where e.at > p_acked
  ),
  step as (
    select n.at, n.count
    from (select c.*, lead(c.count, 1, 0) over (order by c.at) as next from counted c) n
    where n.count <> n.next
  )
  select coalesce(max(s.at), 0), coalesce(max(s.count), 0),
         case when count(*) > 1 then (
           select array_agg(v.value order by s.at, v.place)
           from step s cross join lateral (values (1, s.at), (2, s.count)) v(place, value)) end
  from step s;
$$;

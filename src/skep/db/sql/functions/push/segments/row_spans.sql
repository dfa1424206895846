-- row_spans: the segments that hold one partition's messages of a call.
-- Takes   p_place: the partition's position in the arrays of the call; p_count: its messages.
--         p_row_to: per partition, the position of its last segment among the bodies; p_row_end: per
--         segment, how many messages of its partition lie in it and before it; both null where
--         every partition has one segment.
-- Returns per segment its position among the bodies, and its first and last message, 1-based.
-- Locks   none.
-- Why     A pop reads whole segments, so a flush of ten thousand messages is stored as many of
--         them, each as large as a page (ADR 0046). Brokers cut, for they know the lengths;
--         join_envelopes cuts for SQL. The planner puts this text into the statements that use it.
create function skep.row_spans(
  p_place integer, p_count integer, p_row_to integer[], p_row_end integer[])
returns table (number integer, low integer, high integer)
language sql immutable as $$
  select n.number,
         case when n.number > n.before + 1 then p_row_end[n.number - 1] + 1 else 1 end,
         coalesce(p_row_end[n.number], p_count)
  from (
    select s.before, generate_series(s.before + 1, s.upto) as number
    from (
      select case when p_row_to is null then p_place - 1 else coalesce(p_row_to[p_place - 1], 0) end
               as before,
             coalesce(p_row_to[p_place], p_place) as upto
    ) s
  ) n;
$$;

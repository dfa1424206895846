-- undone_range: how far a claim of some messages reaches, leaving out done ones.
-- Takes   p_acked, p_done: as pass_done leaves them; p_last: the last offset that may be taken.
-- Returns upto: the end of the range, with no done message behind it; count: messages in (p_acked,
--         upto] that are not done.
-- Locks   none.
-- Why     Done messages must not use up the batch, or a partition whose first message waits while
--         thousands behind it are done would deliver nothing else. A done range is passed if fewer
--         than p_batch undone messages precede it, so the end is found without walking.
create function skep.undone_range(
  p_acked bigint, p_done int8multirange, p_batch integer, p_last bigint)
returns table (upto bigint, count integer)
language sql immutable as $$
  with passed as (
    select lower(r) as low, upper(r) as high,
           lower(r) - 1 - p_acked
             - coalesce(sum(upper(r) - lower(r)) over (
                 order by lower(r) rows between unbounded preceding and 1 preceding), 0)
             as undone_before
    from unnest(p_done) r
    where lower(r) <= p_last + 1
  ),
  reach as (
    select p_acked + p_batch
             + coalesce(sum(p.high - p.low) filter (where p.undone_before < p_batch), 0) as upto
    from passed p
  ),
  bounded as (select least(r.upto, p_last)::bigint as upto from reach r)
  select coalesce((select p.high - 1 from passed p
                   where b.upto + 1 >= p.low and b.upto + 1 < p.high), b.upto),
         (b.upto - p_acked
           - coalesce((select sum(least(p.high, b.upto + 1) - p.low) from passed p
                       where p.low <= b.upto), 0))::integer
  from bounded b;
$$;

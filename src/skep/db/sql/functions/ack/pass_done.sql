-- pass_done: move a position past finished messages.
-- Takes   p_acked: everything up to here is done. p_done: further finished offsets, or null.
-- Returns the new acked and done: done holds nothing up to acked + 1 and is null when empty.
-- Locks   none.
-- Model   Delivery!Passed
-- Why     Every function that moves a cursor or adds to done keeps this form: the message behind
--         acked is always one to deliver, and null marks the usual case.
create function skep.pass_done(p_acked bigint, p_done int8multirange)
returns table (acked bigint, done int8multirange)
language sql immutable as $$
  select a.acked, nullif(p_done - int8multirange(int8range(null, a.acked + 1)), '{}')
  from (
    select coalesce(max(upper(r) - 1), p_acked) as acked
    from unnest(p_done) r where r @> p_acked + 1
  ) a;
$$;

/*
pass_done: move a cursor's position over messages that are done ahead of it.

Takes   p_acked: every offset up to here is done. p_done: further offsets that are, or null.
Returns acked and done after the move: done holds nothing up to acked + 1, and is null when empty.
Locks   none.
Why     Everybody who moves a cursor or adds to its done offsets keeps them in this form, so that
        the message behind acked is always one to deliver, and a partition without done offsets, which
        is nearly every partition, is told by a null.
*/
create function skep.pass_done(p_acked bigint, p_done int8multirange)
returns table (acked bigint, done int8multirange)
language sql immutable as $$
  select a.acked, nullif(p_done - int8multirange(int8range(null, a.acked + 1)), '{}')
  from (
    select coalesce(max(upper(r) - 1), p_acked) as acked
    from unnest(p_done) r where r @> p_acked + 1
  ) a;
$$;

/*
hold_staging: lock what attempts have staged, and count it.

Takes   p_write_id, p_epoch, p_attempt: whose staging.
Returns how many rows there are; a segment counts when both what is known of it and its bytes are
        there.
Locks   these rows for update.
Why     A sweep must not take them away in the middle of their commit. Rows by rows through the
        index: see append_staged.
*/
create function skep.hold_staging(p_write_id text, p_epoch bigint, p_attempt bigint[])
returns bigint
language sql
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select (select count(*) from (
            select from skep.staged_segment s
            cross join lateral (
              select from skep.segment b
              where b.partition_id = -s.attempt and b.first = s.number for update
            ) b
            where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
            for update of s) s)
         + (select count(*) from (
            select from skep.staged_message m where m.write_id = p_write_id
              and m.epoch = p_epoch and m.attempt = any(p_attempt) for update) m)
         + (select count(*) from (
            select from skep.staged_reject r where r.write_id = p_write_id
              and r.epoch = p_epoch and r.attempt = any(p_attempt) for update) r);
$$;

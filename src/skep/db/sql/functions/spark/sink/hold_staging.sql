-- hold_staging: lock and count what attempts have staged.
-- Takes   p_write_id, p_epoch, p_attempt: the staging.
-- Returns how many rows; a segment counts if both its description and its bytes are there.
-- Locks   the staged rows for update.
-- Why     A sweep must not delete them during their commit. Row by row through the index: see
--         append_staged.
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

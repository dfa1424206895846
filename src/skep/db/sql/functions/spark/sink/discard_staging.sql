-- discard_staging: delete what a write has staged for a target, up to an epoch.
-- Returns how many rows.
-- Locks   the deleted rows.
-- Why     For abandoned writes, and for failed attempts of a committed one. Repeating it is
--         harmless: a commit that finds fewer rows than announced does nothing. Segments are found
--         by their attempts.
create function skep.discard_staging(
  p_write_id text, p_epoch bigint, p_target text default '')
returns bigint
language sql as $$
  with bodies as (
    delete from skep.segment g
    where g.partition_id = any(array(
      select distinct -s.attempt from skep.staged_segment s
      where s.write_id = p_write_id and s.epoch <= p_epoch and s.target = p_target))
  ),
  segments as (
    delete from skep.staged_segment s
    where s.write_id = p_write_id and s.epoch <= p_epoch and s.target = p_target
    returning 1
  ),
  messages as (
    delete from skep.staged_message m
    where m.write_id = p_write_id and m.epoch <= p_epoch and m.target = p_target
    returning 1
  ),
  rejects as (
    delete from skep.staged_reject r
    where r.write_id = p_write_id and r.epoch <= p_epoch and r.target = p_target
    returning 1
  )
  select (select count(*) from segments) + (select count(*) from messages)
         + (select count(*) from rejects);
$$;

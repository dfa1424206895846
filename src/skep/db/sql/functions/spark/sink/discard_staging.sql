/*
discard_staging: throw away what a write has staged, up to an epoch.

Takes   p_write_id, p_epoch.
Returns how many rows were thrown away.
Locks   these rows.
Why     For a write that is given up, and for what dead attempts leave behind one that commits. To
        do it twice is harmless: a commit that finds less than it was told of does nothing. Segments
        are found by their attempts, whose partitions hold nothing else.
*/
create function skep.discard_staging(p_write_id text, p_epoch bigint) returns bigint
language sql as $$
  with bodies as (
    delete from skep.segment g
    where g.partition_id = any(array(
      select distinct -s.attempt from skep.staged_segment s
      where s.write_id = p_write_id and s.epoch <= p_epoch))
  ),
  segments as (
    delete from skep.staged_segment s where s.write_id = p_write_id and s.epoch <= p_epoch
    returning 1
  ),
  messages as (
    delete from skep.staged_message m where m.write_id = p_write_id and m.epoch <= p_epoch
    returning 1
  ),
  rejects as (
    delete from skep.staged_reject r where r.write_id = p_write_id and r.epoch <= p_epoch
    returning 1
  )
  select (select count(*) from segments) + (select count(*) from messages)
         + (select count(*) from rejects);
$$;

-- sweep_staging: delete abandoned staging and old records of sinks.
-- Takes   p_before: what was staged or committed before. p_limit: rows per table.
-- Returns how many rows.
-- Locks   the deleted rows, skipping locked ones.
-- Why     A killed driver cleans up nothing. A write that is still running after that time fails at
--         its commit, without a trace. Segments are searched on their own: after a crash nothing
--         else refers to them.
create function skep.sweep_staging(p_before timestamptz, p_limit integer) returns bigint
language sql as $$
  with bodies as (
    delete from skep.segment g
    where g.ctid = any(array(
      select o.ctid from skep.segment o where o.partition_id < 0 and o.created_at < p_before
      limit p_limit for update skip locked))
    returning 1
  ),
  segments as (
    delete from skep.staged_segment s
    where s.ctid = any(array(
      select o.ctid from skep.staged_segment o where o.staged_at < p_before
      order by o.staged_at limit p_limit for update skip locked))
    returning 1
  ),
  messages as (
    delete from skep.staged_message m
    where m.ctid = any(array(
      select o.ctid from skep.staged_message o where o.staged_at < p_before
      order by o.staged_at limit p_limit for update skip locked))
    returning 1
  ),
  rejects as (
    delete from skep.staged_reject r
    where r.ctid = any(array(
      select o.ctid from skep.staged_reject o where o.staged_at < p_before
      order by o.staged_at limit p_limit for update skip locked))
    returning 1
  ),
  records as (
    delete from skep.sink k
    where k.ctid = any(array(
      select o.ctid from skep.sink o where o.is_passing and o.committed_at < p_before
      order by o.committed_at limit p_limit for update skip locked))
    returning 1
  )
  select (select count(*) from bodies) + (select count(*) from segments)
         + (select count(*) from messages) + (select count(*) from rejects)
         + (select count(*) from records);
$$;

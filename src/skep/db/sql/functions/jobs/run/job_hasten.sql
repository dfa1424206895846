-- job_hasten: make scheduled jobs of a list ready now.
-- Returns per job that became ready: job_id, type.
-- Locks   skep.open_job rows for no key update, in ascending id, skipping locked ones.
-- Why     For jobs found by a filter: unlike job_trigger it ignores jobs that are running, blocked
--         or locked, because they may have changed since.
create function skep.job_hasten(p_job_id uuid[])
returns table (job_id uuid, type text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  with locked as materialized (
    select o.job_id from (select distinct u.id from unnest(p_job_id) u(id) order by u.id) u
    cross join lateral (
      select o.job_id from skep.open_job o
      where o.job_id = u.id and o.worker_id is null and o.open_blockers = 0 and o.due_at > v_now
      for no key update skip locked
    ) o
  ), hastened as (
    update skep.open_job o set due_at = v_now
    where o.job_id in (select l.job_id from locked l)
    returning o.job_id, o.type_id
  )
  select h.job_id, t.name from hastened h join skep.job_type t on t.id = h.type_id;
end $$;

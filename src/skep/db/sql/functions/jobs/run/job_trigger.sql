-- job_trigger: run scheduled jobs now, all of them or none.
-- Returns per job: job_id, outcome (triggered, missing, or the state that forbids it: blocked,
--         running, completed, continued, failed, cancelled), type. Nothing changed unless all say
--         triggered.
-- Locks   skep.open_job rows for no key update, in ascending id.
-- Why     Ready jobs count as triggered and keep their place.
create function skep.job_trigger(p_job_id uuid[])
returns table (job_id uuid, outcome text, type text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  perform 1 from (
    select distinct u.id from unnest(p_job_id) u(id) order by u.id
  ) u cross join lateral (
    select 1 from skep.open_job o where o.job_id = u.id for no key update
  ) o;
  if not exists (
    select from unnest(p_job_id) u(id)
    left join skep.open_job o on o.job_id = u.id
    where o.job_id is null or o.worker_id is not null or o.open_blockers > 0)
  then
    update skep.open_job o set due_at = v_now
    where o.job_id = any (p_job_id) and o.due_at > v_now;
  end if;
  return query
  select u.id,
         case when j.id is null then 'missing'
              when o.job_id is null then j.state
              when o.worker_id is not null then 'running'
              when o.open_blockers > 0 then 'blocked'
              else 'triggered' end,
         t.name
  from unnest(p_job_id) u(id)
  left join skep.job j on j.id = u.id
  left join skep.open_job o on o.job_id = u.id
  left join skep.job_type t on t.id = j.type_id;
end $$;

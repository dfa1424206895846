-- job_worker_list: one page of enrolled workers.
-- Takes   p_after: the last id of the previous page, null to begin; p_limit.
-- Returns in enrolment order: id, name, enrolled_at, expires_at, is_late (its lease expired; its
--         jobs will be reaped), running (how many jobs).
-- Why     Running jobs are counted in an index that holds only those.
create function skep.job_worker_list(p_after uuid, p_limit integer)
returns table (
  id uuid, name text, enrolled_at timestamptz, expires_at timestamptz, is_late boolean,
  running bigint)
language sql stable as $$
  select w.id, w.name, w.enrolled_at, w.expires_at, w.expires_at <= skep.now(), r.running
  from (
    select w.* from skep.job_worker w
    where p_after is null or w.id > p_after order by w.id limit p_limit
  ) w
  cross join lateral (
    select count(*) as running from skep.open_job o where o.worker_id = w.id
  ) r
  order by w.id;
$$;

-- job_report: record the progress that handlers report.
-- Takes   p_worker_id; per job, in parallel arrays: p_job_id, p_attempt (the token), p_share (0 to
--         1, or null), p_note (or null).
-- Locks   skep.job_progress rows, in ascending job_id.
-- Why     Informational: a worker that lost its job writes nothing.
create function skep.job_report(
  p_worker_id uuid, p_job_id uuid[], p_attempt integer[], p_share double precision[],
  p_note text[])
returns void
language sql as $$
  insert into skep.job_progress as p (job_id, attempt, share, note, reported_at)
  select u.job_id, u.attempt, u.share, u.note, skep.now()
  from unnest(p_job_id, p_attempt, p_share, p_note) u(job_id, attempt, share, note)
  cross join lateral (
    select 1 from skep.open_job o
    where o.job_id = u.job_id and o.attempt = u.attempt and o.worker_id = p_worker_id offset 0
  ) o
  order by u.job_id
  on conflict (job_id) do update
  set attempt = excluded.attempt, share = excluded.share, note = excluded.note,
      reported_at = excluded.reported_at;
$$;

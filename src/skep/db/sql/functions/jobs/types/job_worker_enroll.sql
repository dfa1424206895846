-- job_worker_enroll: register a worker.
-- Takes   p_worker_id: new, or its own again. p_name: for people. p_lease_s.
-- Locks   the skep.job_worker row.
-- Why     A worker has one lease for all its jobs, renewed by one update. A worker that missed the
--         answer enrolls again.
create function skep.job_worker_enroll(
  p_worker_id uuid, p_name text, p_lease_s double precision)
returns void
language sql as $$
  insert into skep.job_worker (id, name, enrolled_at, expires_at)
  values (p_worker_id, p_name, skep.now(), skep.now() + make_interval(secs => p_lease_s))
  on conflict (id) do update set expires_at = excluded.expires_at;
$$;

/*
job_worker_enroll: let a worker claim jobs.

Takes   p_worker_id: new. p_name: for people. p_lease_s: for how long it need not be heard of.
Returns nothing.
Locks   the new skep.job_worker row.
Why     A worker has one lease for all jobs it runs: to renew it is one update, however many.
*/
create function skep.job_worker_enroll(
  p_worker_id uuid, p_name text, p_lease_s double precision)
returns void
language sql as $$
  insert into skep.job_worker (id, name, enrolled_at, expires_at)
  values (p_worker_id, p_name, skep.now(), skep.now() + make_interval(secs => p_lease_s));
$$;

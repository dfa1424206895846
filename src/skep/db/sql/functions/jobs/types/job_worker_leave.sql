-- job_worker_leave: end a worker's lease.
-- Locks   the skep.job_worker row for update.
-- Why     If it still has jobs, which it should not, the reaper takes them at once.
create function skep.job_worker_leave(p_worker_id uuid) returns void
language plpgsql as $$
begin
  perform 1 from skep.job_worker w where w.id = p_worker_id for update;
  if exists (select from skep.open_job o where o.worker_id = p_worker_id) then
    update skep.job_worker w set expires_at = '-infinity' where w.id = p_worker_id;
  else
    delete from skep.job_worker w where w.id = p_worker_id;
  end if;
end $$;

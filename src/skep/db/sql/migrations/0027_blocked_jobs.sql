/*
Find the jobs that wait for other chains without reading all that are open.

Only such jobs are in it: whatever never waits for another chain costs nothing here.
*/
create index open_job__blocked on skep.open_job (type_id, job_id) where open_blockers > 0;

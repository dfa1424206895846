-- analytics_progress: how far analytics have come.
-- Returns one row: now; watermark: every hour before it was computed since analytics began, null
--         before the first run; finished_at and messages of the last run.
-- Why     Runs for chosen hours leave gaps and do not count as progress.
create function skep.analytics_progress()
returns table (
  now timestamptz, watermark timestamptz, finished_at timestamptz, messages bigint)
language sql stable as $$
  select skep.now(), (select max(n.upto) from skep.analytics_run n where n.is_next),
         l.finished_at, l.messages
  from (values (true)) one
  left join lateral (
    select r.finished_at, r.messages from skep.analytics_run r order by r.id desc limit 1
  ) l on true;
$$;

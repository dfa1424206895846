/*
record_worker_hour: keep what workers were doing in one hour.

Takes   p_service, p_holder: as apply_retention. p_hour. p_worker_id, p_sample: by worker, in JSON.
Returns nothing.
Raises  SK423 as assert_leadership.
Locks   the rows written.
Why     The counterpart of unrolled_samples. Doing it twice does no harm.
*/
create function skep.record_worker_hour(
  p_service text, p_holder uuid, p_hour timestamptz, p_worker_id integer[], p_sample text[])
returns void
language plpgsql as $$
#variable_conflict use_column
begin
  perform skep.assert_leadership(p_service, p_holder);
  insert into skep.worker_hour (worker_id, at, sample)
  select s.worker_id, p_hour, s.sample::jsonb
  from unnest(p_worker_id, p_sample) s(worker_id, sample)
  on conflict (worker_id, at) do nothing;
end $$;

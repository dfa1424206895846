-- record_worker_hour: store what workers did in one hour.
-- Raises  SK423 as assert_leadership.
-- Locks   the rows written.
-- Why     The counterpart of unrolled_samples. Repeating it is harmless.
create function skep.record_worker_hour(
  p_service text, p_holder uuid, p_hour timestamptz, p_worker_id integer[], p_sample text[])
returns void
language plpgsql as $$
begin
  perform skep.assert_leadership(p_service, p_holder);
  insert into skep.worker_hour (worker_id, at, sample)
  select s.worker_id, p_hour, s.sample::jsonb
  from unnest(p_worker_id, p_sample) s(worker_id, sample)
  on conflict (worker_id, at) do nothing;
end $$;

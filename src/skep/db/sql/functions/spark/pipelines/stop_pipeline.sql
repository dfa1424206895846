-- stop_pipeline: ask a pipeline to stop.
-- Returns its previous state and silent_s, the seconds since its last report; no row if there is no
--         such pipeline.
-- Locks   the skep.pipeline row.
-- Why     Its runner asks once a second. A run that has ended is not asked, or the next one would
--         stop.
create function skep.stop_pipeline(p_name text)
returns table (state text, silent_s double precision)
language sql as $$
  update skep.pipeline p set should_stop = p.state in ('starting', 'running')
  where p.name = p_name
  returning p.state, extract(epoch from skep.now() - p.seen_at)::double precision;
$$;

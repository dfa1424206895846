-- begin_pipeline: record that a pipeline starts, unless its definition changed.
-- Takes   p_hash: of what its checkpoint depends on. p_is_reset: start anew whatever it was.
-- Returns run_id: null if it was not started, because its checkpoint was made by another
--         definition. known_hash, known_checkpoint: of the previous run. has_progress: a previous
--         run completed a micro-batch, and this one goes on from there.
-- Locks   the skep.pipeline row.
-- Why     One statement decides and records, so of two concurrent starts the second sees the first.
create function skep.begin_pipeline(
  p_name text, p_definition json, p_hash text, p_checkpoint text, p_runner text, p_master text,
  p_is_reset boolean)
returns table (run_id uuid, known_hash text, known_checkpoint text, has_progress boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_known skep.pipeline;
  v_run_id uuid;
begin
  select p.* into v_known from skep.pipeline p where p.name = p_name for update;
  -- The insert checks again: the row may have appeared since.
  insert into skep.pipeline as p (
    name, definition, definition_hash, checkpoint, run_id, runner, master, state, started_at,
    seen_at)
  values (
    p_name, p_definition, p_hash, p_checkpoint, gen_random_uuid(), p_runner, p_master, 'starting',
    skep.now(), skep.now())
  on conflict (name) do update set
    definition = excluded.definition, definition_hash = excluded.definition_hash,
    checkpoint = excluded.checkpoint, run_id = excluded.run_id, runner = excluded.runner,
    master = excluded.master, state = excluded.state, should_stop = false,
    position = case when p_is_reset then null else p.position end,
    batches = 0, messages = 0, rate = 0, recent = null, expectations = null, last_error = null,
    started_at = excluded.started_at, seen_at = excluded.seen_at, ended_at = null
  where p.definition_hash = p_hash or p_is_reset
  returning p.run_id into v_run_id;
  return query select
    v_run_id, v_known.definition_hash, v_known.checkpoint,
    v_known.position is not null and not p_is_reset;
end $$;

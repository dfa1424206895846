-- register_query: find a stream's query by name, or create it.
-- Takes   p_sink_queue: null: none. p_config_hash: the shape of its pipeline. p_reset: delete the
--         state if the shape changed.
-- Returns config_hash (now stored), is_fresh (created by this call), is_reset (state was deleted).
--         If the stored hash is not p_config_hash, nothing was changed.
-- Locks   the skep.stream_query row; to reset, for update, which waits for running cycles.
-- Why     State of one pipeline means nothing to another: a runner must not start on it by
--         accident, and old runners must not write after a reset.
create function skep.register_query(
  p_name text, p_source_queue text, p_sink_queue text, p_config_hash text, p_reset boolean)
returns table (query_id uuid, config_hash text, is_fresh boolean, is_reset boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  -- The no-op update locks an existing row against deletion.
  insert into skep.stream_query as q (name, source_queue, sink_queue, config_hash)
  values (p_name, p_source_queue, p_sink_queue, p_config_hash)
  on conflict (name) do update set name = q.name
  returning q.id, q.config_hash, q.xmax = 0 into query_id, config_hash, is_fresh;
  is_reset := register_query.config_hash <> p_config_hash and p_reset;
  if is_reset then
    perform 1 from skep.stream_query q where q.id = register_query.query_id for update;
    delete from skep.stream_shard s where s.query_id = register_query.query_id;
  end if;
  if is_reset or (config_hash = p_config_hash and not is_fresh) then
    update skep.stream_query q
    set source_queue = p_source_queue, sink_queue = p_sink_queue, config_hash = p_config_hash,
        updated_at = skep.now()
    where q.id = register_query.query_id;
    config_hash := p_config_hash;
  end if;
  return next;
end $$;

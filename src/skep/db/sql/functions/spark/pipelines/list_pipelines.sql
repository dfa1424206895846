-- list_pipelines: one page of pipelines, or a single one.
-- Takes   p_name: null for all. p_limit, p_offset.
-- Returns by name: all columns; silent_s: seconds since the last report; total.
-- Why     The database's clock is the only one that runners and readers share.
create function skep.list_pipelines(p_name text, p_limit integer, p_offset integer)
returns table (
  name text, state text, definition text, definition_hash text, checkpoint text, runner text,
  master text, should_stop boolean, "position" text, batches bigint, messages bigint,
  rate double precision, lag_messages bigint, lag_s bigint, last_error text,
  started_at timestamptz, seen_at timestamptz, ended_at timestamptz, silent_s double precision,
  recent text, expectations text, total bigint)
language sql stable as $$
  select p.name, p.state, p.definition::text, p.definition_hash, p.checkpoint, p.runner, p.master,
         p.should_stop, p.position::text, p.batches, p.messages, p.rate, p.lag_messages, p.lag_s,
         p.last_error, p.started_at, p.seen_at, p.ended_at,
         extract(epoch from skep.now() - p.seen_at)::double precision, p.recent::text,
         p.expectations::text,
         count(*) over ()
  from skep.pipeline p
  where p_name is null or p.name = p_name
  order by p.name
  limit p_limit offset p_offset;
$$;

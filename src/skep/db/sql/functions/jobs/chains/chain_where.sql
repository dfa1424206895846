-- chain_where: build the SQL condition of a filter of chains, for a table alias c.
-- Takes   p_type (name), p_state (open, completed, failed, cancelled), p_parent_job_id, p_key,
--         p_ids: null for any; p_created_from, p_created_to: null for no bound; p_descending;
--         p_after: the last id of the previous page, null to begin.
-- Returns SQL, never empty.
-- Why     One filter for listing, counting and changing: what is changed is what was shown. Values
--         are constants, not parameters: only then can the planner use partial indexes and
--         statistics.
create function skep.chain_where(
  p_type text, p_state text, p_parent_job_id uuid, p_key text, p_ids uuid[],
  p_created_from timestamptz, p_created_to timestamptz, p_descending boolean, p_after uuid)
returns text
language sql stable as $$
  -- A part is null, and left out, where its value is.
  select concat(
    'true',
    case when p_type is not null then
      format(' and c.type_id = %L', (select t.id from skep.job_type t where t.name = p_type)) end,
    ' and c.state = ' || quote_literal(p_state),
    ' and c.parent_job_id = ' || quote_literal(p_parent_job_id),
    ' and c.key = ' || quote_literal(p_key),
    ' and c.id = any (' || quote_literal(p_ids) || '::uuid[])',
    ' and c.created_at >= ' || quote_literal(p_created_from),
    ' and c.created_at < ' || quote_literal(p_created_to),
    case when p_descending then ' and c.id < ' else ' and c.id > ' end || quote_literal(p_after));
$$;

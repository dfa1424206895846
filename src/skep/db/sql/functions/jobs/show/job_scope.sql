-- job_scope: build the SQL source and condition of a filter of jobs.
-- Takes   p_type (name), p_state (as job_state), p_chain_id, p_ids, p_blocked_by (a chain they wait
--         or waited for): null for any; p_created_from, p_created_to: null for no bound;
--         p_descending; p_after: the last id of the previous page,
--         null to begin.
-- Returns one row of SQL: source (aliases j = skep.job, o = skep.open_job), key (the column in id
--         order), condition.
-- Why     As chain_where. Open jobs are searched in open_job, failed and cancelled ones through
--         their chains; completed ones are nearly all jobs.
create function skep.job_scope(
  p_type text, p_state text, p_chain_id uuid, p_ids uuid[], p_blocked_by uuid,
  p_created_from timestamptz, p_created_to timestamptz, p_descending boolean, p_after uuid)
returns table (source text, key text, condition text)
language plpgsql stable as $$
#variable_conflict use_column
begin
  source := 'skep.job j left join skep.open_job o on o.job_id = j.id';
  key := 'j.id';
  if p_state in ('blocked', 'scheduled', 'ready', 'running') then
    source := 'skep.open_job o join skep.job j on j.id = o.job_id';
    key := 'o.job_id';
  elsif p_state in ('failed', 'cancelled') then
    source := format('skep.chain c join skep.job j on j.id = c.last_job_id and c.state = %L
                      left join skep.open_job o on o.job_id = j.id', p_state);
  end if;
  -- A part is null, and left out, where its value is.
  condition := concat(
    'true',
    case p_state
      when 'blocked' then ' and o.open_blockers > 0'
      when 'running' then ' and o.worker_id is not null'
      when 'scheduled' then
        format(' and o.worker_id is null and o.open_blockers = 0 and o.due_at > %L', skep.now())
      when 'ready' then
        format(' and o.worker_id is null and o.open_blockers = 0 and o.due_at <= %L', skep.now())
      else ' and j.state = ' || quote_literal(p_state) end,
    case when p_type is not null then
      format(case key when 'o.job_id' then ' and o.type_id = %L' else ' and j.type_id = %L' end,
             (select t.id from skep.job_type t where t.name = p_type)) end,
    ' and j.chain_id = ' || quote_literal(p_chain_id),
    ' and j.id = any (' || quote_literal(p_ids) || '::uuid[])',
    ' and j.id in (select b.job_id from skep.blocker b where b.chain_id = '
      || quote_literal(p_blocked_by) || ')',
    ' and j.created_at >= ' || quote_literal(p_created_from),
    ' and j.created_at < ' || quote_literal(p_created_to),
    format(' and %s %s ', key, case when p_descending then '<' else '>' end)
      || quote_literal(p_after));
  return next;
end $$;

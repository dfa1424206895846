/*
job_list: one page of jobs.

Takes   p_type (a name), p_state (as job_state says), p_chain_id, p_ids, p_blocked_by (a chain that
        they wait or waited for): each null for any; p_descending; p_after: the last id of the page
        before, null to begin; p_limit.
Returns rows in the order of their ids, which is that of creation.
Locks   none.
Why     As chain_list. Open jobs are looked for among the open, failed and cancelled ones among the
        chains that ended so; completed ones are nearly all.
*/
create function skep.job_list(
  p_type text, p_state text, p_chain_id uuid, p_ids uuid[], p_blocked_by uuid,
  p_descending boolean, p_after uuid, p_limit integer)
returns table (
  id uuid, chain_id uuid, "position" integer, type text, state text, priority smallint,
  created_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz,
  attempts integer, failures integer, max_attempts integer, worker_id uuid, limit_key text,
  input text, output text, error text, trace text, progress double precision,
  progress_note text)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_source text := 'skep.job j left join skep.open_job o on o.job_id = j.id';
  v_key text := 'j.id';
  v_type text := 'j.type_id';
  v_filter text := '';
  v_type_id integer;
begin
  if p_state in ('blocked', 'scheduled', 'ready', 'running') then
    v_source := 'skep.open_job o join skep.job j on j.id = o.job_id';
    v_key := 'o.job_id';
    v_type := 'o.type_id';
  elsif p_state in ('failed', 'cancelled') then
    v_source := format('skep.chain c join skep.job j on j.id = c.last_job_id and c.state = %L
                        left join skep.open_job o on o.job_id = j.id', p_state);
  end if;
  if p_state is not null then
    v_filter := v_filter || case p_state
      when 'blocked' then ' and o.open_blockers > 0'
      when 'running' then ' and o.worker_id is not null'
      when 'scheduled' then ' and o.worker_id is null and o.open_blockers = 0 and o.due_at > $7'
      when 'ready' then ' and o.worker_id is null and o.open_blockers = 0 and o.due_at <= $7'
      else format(' and j.state = %L', p_state) end;
  end if;
  if p_type is not null then
    select t.id into v_type_id from skep.job_type t where t.name = p_type;
    v_filter := v_filter || format(' and %s = $1', v_type);
  end if;
  if p_chain_id is not null then v_filter := v_filter || ' and j.chain_id = $2'; end if;
  if p_ids is not null then v_filter := v_filter || ' and j.id = any ($3)'; end if;
  if p_blocked_by is not null then
    v_filter := v_filter
      || ' and j.id in (select b.job_id from skep.blocker b where b.chain_id = $4)';
  end if;
  if p_after is not null then
    v_filter := v_filter
      || format(case when p_descending then ' and %s < $5' else ' and %s > $5' end, v_key);
  end if;
  return query execute format(
    'select j.id, j.chain_id, j.position, t.name,
            skep.job_state(j.state, o.open_blockers, o.worker_id, o.due_at, $7), j.priority,
            j.created_at, o.due_at, coalesce(o.claimed_at, j.started_at), j.finished_at,
            coalesce(o.attempt, j.attempts), o.failures, j.max_attempts,
            coalesce(o.worker_id, j.worker_id), j.limit_key, j.input::text, j.output::text,
            j.error, j.trace, p.share, p.note
     from %s join skep.job_type t on t.id = j.type_id
     left join skep.job_progress p on p.job_id = j.id
     where true %s order by %s %s limit $6', v_source, v_filter, v_key,
    case when p_descending then 'desc' else 'asc' end)
  using v_type_id, p_chain_id, p_ids, p_blocked_by, p_after, p_limit, skep.now();
end $$;

-- chain_list: one page of chains.
-- Takes   as chain_where; p_limit.
-- Returns rows by id, which is creation order: the chain, the type, id and state of its last job,
--         the output of completed chains, how many chains that the last job waits for failed, and
--         the last error.
-- Why     The id is the whole cursor: no page repeats or skips a row. Each filter has an index in
--         this order; completed chains use the primary key.
create function skep.chain_list(
  p_type text, p_state text, p_parent_job_id uuid, p_key text, p_ids uuid[],
  p_created_from timestamptz, p_created_to timestamptz, p_descending boolean, p_after uuid,
  p_limit integer)
returns table (
  id uuid, type text, state text, created_at timestamptz, closed_at timestamptz,
  deadline_at timestamptz, key text, parent_job_id uuid, error text, job_count integer,
  last_job_id uuid, last_job_type text, last_job_state text, input text, output text, trace text,
  failed_blockers integer, last_error text)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query execute format(
    'select c.id, t.name, c.state, c.created_at, c.closed_at, c.deadline_at, c.key,
            c.parent_job_id, c.error, c.last_position + 1, c.last_job_id, s.name,
            skep.job_state(j.state, o.open_blockers, o.worker_id, o.due_at, skep.now()),
            f.input::text, case when c.state = ''completed'' then j.output::text end, c.trace,
            case when o.blockers > 0 then skep.job_failed_blockers(o.job_id) end,
            coalesce(c.error, skep.job_last_error(
              j.id, j.state, j.error, coalesce(o.attempt, j.attempts)))
     from (select * from skep.chain c where %1$s order by c.id %2$s limit $1) c
     join skep.job_type t on t.id = c.type_id
     join skep.job j on j.id = c.last_job_id
     join skep.job_type s on s.id = j.type_id
     join skep.job f on f.id = c.id
     left join skep.open_job o on o.job_id = j.id
     order by c.id %2$s',
    skep.chain_where(p_type, p_state, p_parent_job_id, p_key, p_ids, p_created_from,
                     p_created_to, p_descending, p_after),
    case when p_descending then 'desc' else 'asc' end)
  using p_limit;
end $$;

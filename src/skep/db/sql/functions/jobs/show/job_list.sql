-- job_list: one page of jobs.
-- Takes   as job_scope; p_limit.
-- Returns rows by id, which is creation order. on_blocker_failure and failed_blockers (how many of
--         its blockers failed or were cancelled) are about open jobs that have blockers. last_error as
--         job_last_error.
-- Why     As chain_list.
create function skep.job_list(
  p_type text, p_state text, p_chain_id uuid, p_ids uuid[], p_blocked_by uuid,
  p_created_from timestamptz, p_created_to timestamptz, p_descending boolean, p_after uuid, p_limit integer)
returns table (
  id uuid, chain_id uuid, "position" integer, type text, state text, priority smallint,
  created_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz,
  attempts integer, failures integer, max_attempts integer, worker_id uuid, limit_key text,
  input text, output text, error text, trace text, progress double precision,
  progress_note text, on_blocker_failure text, failed_blockers integer,
  last_error text)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_scope record;
begin
  select * into v_scope
  from skep.job_scope(p_type, p_state, p_chain_id, p_ids, p_blocked_by, p_created_from,
                      p_created_to, p_descending, p_after);
  return query execute format(
    'select j.id, j.chain_id, j.position, t.name,
            skep.job_state(j.state, o.open_blockers, o.worker_id, o.due_at, skep.now()),
            j.priority, j.created_at, o.due_at, coalesce(o.claimed_at, j.started_at),
            j.finished_at, coalesce(o.attempt, j.attempts), o.failures, j.max_attempts,
            coalesce(o.worker_id, j.worker_id), j.limit_key, j.input::text, j.output::text,
            j.error, j.trace, p.share, p.note,
            case when o.blockers > 0 then (
              select b.on_failure from skep.blocker b where b.job_id = o.job_id limit 1) end,
            case when o.blockers > 0 then skep.job_failed_blockers(o.job_id) end,
            skep.job_last_error(j.id, j.state, j.error, coalesce(o.attempt, j.attempts))
     from %s join skep.job_type t on t.id = j.type_id
     left join skep.job_progress p on p.job_id = j.id
     where %s order by %s %s limit $1', v_scope.source, v_scope.condition, v_scope.key,
    case when p_descending then 'desc' else 'asc' end)
  using p_limit;
end $$;

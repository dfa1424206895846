-- chain_graph: the jobs of a chain and of the chains around it, with their attempts.
-- Takes   p_chain_id; p_chains_max, p_jobs_max: how much of it to return.
-- Returns the chain's own jobs first; then those of the chains that its jobs wait or waited for and
--         of those its jobs started, nearest first, and theirs in turn; of the chains that wait for
--         it, and of the one that started it. Of a long chain the newest jobs. waits_for: the chains
--         a job waits or waited for. tries: its last 20 attempts, as job_attempts.
-- Why     What a person wants to see of a chain at once. The walk ends with p_chains_max, however
--         many there are.
create function skep.chain_graph(p_chain_id uuid, p_chains_max integer, p_jobs_max integer)
returns table (
  id uuid, chain_id uuid, chain_state text, parent_job_id uuid, "position" integer, type text,
  state text, created_at timestamptz, due_at timestamptz, started_at timestamptz,
  finished_at timestamptz, attempts integer, max_attempts integer, waits_for uuid[], error text,
  tries json)
language sql stable as $$
  with recursive reached(chain_id) as (
    select c.id from skep.chain c where c.id = p_chain_id
    union
    select n.id
    from reached r
    join skep.job j on j.chain_id = r.chain_id
    cross join lateral (
      (select b.chain_id as id from skep.blocker b where b.job_id = j.id order by b.position)
      union all
      (select c.id from skep.chain c where c.parent_job_id = j.id)
    ) n
  ),
  behind(chain_id) as (
    (select j.chain_id
     from skep.blocker b
     join skep.job j on j.id = b.job_id
     where b.chain_id = p_chain_id limit 20)
    union
    select j.chain_id
    from skep.chain c
    join skep.job j on j.id = c.parent_job_id
    where c.id = p_chain_id
  ),
  shown as materialized (
    select c.id, c.state, c.parent_job_id, c.last_position, min(n.distance) as distance
    from (
      select r.chain_id, row_number() over () as distance
      from (select r.chain_id from reached r limit p_chains_max) r
      union all
      select b.chain_id, p_chains_max + 1 from behind b
    ) n
    join skep.chain c on c.id = n.chain_id
    group by c.id
  )
  select j.id, j.chain_id, s.state, s.parent_job_id, j.position, t.name,
         skep.job_state(j.state, o.open_blockers, o.worker_id, o.due_at, skep.now()),
         j.created_at, o.due_at, coalesce(o.claimed_at, j.started_at), j.finished_at,
         coalesce(o.attempt, j.attempts), j.max_attempts,
         array(select b.chain_id from skep.blocker b where b.job_id = j.id
               order by b.position limit p_chains_max),
         skep.job_last_error(j.id, j.state, j.error, coalesce(o.attempt, j.attempts)),
         (select json_agg(json_build_object(
                   'attempt', a.attempt, 'outcome', a.outcome, 'workerId', a.worker_id,
                   'startedAt', a.started_at, 'endedAt', a.ended_at, 'error', a.error)
                 order by a.attempt)
          from skep.job_attempts(
            j.id, greatest(coalesce(o.attempt, j.attempts) - 20, 0), 20) a)
  from shown s
  join skep.job j on j.chain_id = s.id and j.position > s.last_position - p_jobs_max
  join skep.job_type t on t.id = j.type_id
  left join skep.open_job o on o.job_id = j.id
  order by s.distance, s.id, j.position desc
  limit p_jobs_max;
$$;

-- job_blockers: the outcomes of a job's blockers.
-- Returns a JSON array, as text, of {chain, type, state, output, onFailure, trace} in the order given; null if
--         there are none.
-- Why     Outputs are embedded as stored, unparsed; a chain's output is that of its last job.
create function skep.job_blockers(p_job_id uuid) returns text
language sql stable as $$
  select json_agg(json_build_object(
           'chain', b.chain_id, 'type', c.name, 'state', c.state, 'output', c.output,
           'onFailure', b.on_failure, 'trace', c.trace) order by b.position)::text
  from skep.blocker b
  cross join lateral (
    select t.name, c.state, case when c.state = 'completed' then j.output end as output,
           j.trace
    from skep.chain c
    join skep.job_type t on t.id = c.type_id
    join skep.job j on j.id = c.last_job_id
    where c.id = b.chain_id offset 0
  ) c
  where b.job_id = p_job_id;
$$;

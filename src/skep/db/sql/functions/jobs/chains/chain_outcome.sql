-- chain_outcome: how chains ended, if they have.
-- Returns per chain that exists: chain_id, state, type, output (JSON, if completed), error.
-- Why     A client that awaits many chains asks for all of them at once.
create function skep.chain_outcome(p_chain_id uuid[])
returns table (chain_id uuid, state text, type text, output text, error text)
language sql stable as $$
  select c.id, c.state, t.name, j.output::text, c.error
  from unnest(p_chain_id) u(id)
  join skep.chain c on c.id = u.id
  join skep.job_type t on t.id = c.type_id
  left join skep.job j on j.id = c.last_job_id and c.state = 'completed';
$$;

/*
chain_outcome: tell how chains ended, or that they have not.

Takes   p_chain_id.
Returns one row per chain that exists: chain_id, state, type, output (JSON, of completed ones), error.
Locks   none.
Why     Those who await many chains ask for all of them at once.
*/
create function skep.chain_outcome(p_chain_id uuid[])
returns table (chain_id uuid, state text, type text, output text, error text)
language sql stable as $$
  select c.id, c.state, t.name, j.output::text, c.error
  from unnest(p_chain_id) u(id)
  join skep.chain c on c.id = u.id
  join skep.job_type t on t.id = c.type_id
  left join skep.job j on j.id = c.last_job_id and c.state = 'completed';
$$;

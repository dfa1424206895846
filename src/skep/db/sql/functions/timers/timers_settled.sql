-- timers_settled: find the answers of executions whose connection was lost.
-- Takes   p_ids: as timers_commit.
-- Returns a row per execution that committed a change: id, and the columns of timers_commit.
-- Why     What is not found changed nothing and can be carried out again.
create function skep.timers_settled(p_ids uuid[])
returns table (
  id uuid, status text[], transaction_id text[], deliver_at timestamptz[],
  seconds double precision[])
language sql as $$
  select t.id, a.*
  from skep.settled_transaction t
  cross join lateral json_to_record(t.answer) a(
    status text[], transaction_id text[], deliver_at timestamptz[], seconds double precision[])
  where t.id = any(p_ids);
$$;

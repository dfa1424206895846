-- kv_settled: find the answers of executions whose connection was lost.
-- Takes   p_ids: as kv_commit.
-- Returns a row per execution that committed a change: id, and the columns of kv_commit.
-- Why     What is not found changed nothing and can be carried out again.
create function skep.kv_settled(p_ids uuid[])
returns table (
  id uuid, applied boolean[], reason text[], value text[], version bigint[],
  expires_at timestamptz[], updated_at timestamptz[], is_undone boolean[], listed json)
language sql as $$
  select t.id, a.*
  from skep.settled_transaction t
  cross join lateral json_to_record(t.answer) a(
    applied boolean[], reason text[], value text[], version bigint[], expires_at timestamptz[],
    updated_at timestamptz[], is_undone boolean[], listed json)
  where t.id = any(p_ids);
$$;

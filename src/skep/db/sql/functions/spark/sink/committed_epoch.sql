-- committed_epoch: the newest epoch that a write has committed to a target.
-- Returns -1 if it has none.
-- Why     Asked by every task, which need not stage what is stored already, and by the commit.
create function skep.committed_epoch(p_write_id text, p_target text) returns bigint
language sql stable as $$
  select coalesce(max(k.epoch), -1) from skep.sink k
  where k.write_id = p_write_id and k.target in ('', p_target);
$$;

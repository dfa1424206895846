-- chain_discard: delete the chains of a list that can be deleted.
-- Takes   p_chain_id; p_state: only chains still in this state, null for any.
-- Returns per chain that could be locked: chain_id, outcome: deleted; needed (a job of a remaining
--         chain references it); or its current state, if that is not p_state.
-- Locks   as chain_lock, without waiting.
-- Why     For chains found by a filter: unlike chain_delete each is refused by itself. Chains that
--         need only each other go together, so what stays is found in rounds.
create function skep.chain_discard(p_chain_id uuid[], p_state text)
returns table (chain_id uuid, outcome text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_locked uuid[] := skep.chain_lock(p_chain_id, false);
  v_going uuid[];
  v_needed uuid[];
begin
  v_going := array(
    select c.id from skep.chain c
    where c.id = any (v_locked) and (p_state is null or c.state = p_state));
  loop
    v_needed := array(
      select distinct u.id from unnest(v_going) u(id)
      cross join lateral (
        select b.job_id from skep.blocker b where b.chain_id = u.id offset 0
      ) b
      cross join lateral (
        select j.chain_id from skep.job j where j.id = b.job_id offset 0
      ) j
      where j.chain_id <> all (v_going));
    exit when cardinality(v_needed) = 0;
    v_going := array(select u.id from unnest(v_going) u(id) where u.id <> all (v_needed));
  end loop;

  return query
  select c.id,
         case when c.id = any (v_going) then 'deleted'
              when p_state is null or c.state = p_state then 'needed'
              else c.state end
  from skep.chain c where c.id = any (v_locked);
  perform skep.chain_erase(v_going, false);
end $$;

-- job_check_blockers: check whether continuations may wait for their blockers.
-- Takes   p_answer: the verdict per job so far; p_chain_id: its chain. p_blocked_item (1-based),
--         p_blocker_id: the edges. p_wait: wait for locked chains.
-- Returns p_answer, with missing_blocker, cyclic or busy where that applies.
-- Locks   the blockers' skep.chain rows for share, in ascending id (skipping locked ones unless
--         p_wait).
-- Why     Chains that wait for each other would wait for ever. Two that are about to do so hold
--         their own chain and want the other's: one fails or retries, and then finds the cycle.
create function skep.job_check_blockers(
  p_answer text[], p_chain_id uuid[], p_blocked_item integer[], p_blocker_id uuid[],
  p_wait boolean)
returns text[]
language plpgsql as $$
declare
  v_answer text[] := p_answer;
  v_edge record;
begin
  for v_edge in
    select u.item, u.blocker_id from unnest(p_blocked_item, p_blocker_id) u(item, blocker_id)
    order by u.blocker_id
  loop
    continue when v_answer[v_edge.item] <> 'settled';
    if not exists (select from skep.chain c where c.id = v_edge.blocker_id) then
      v_answer[v_edge.item] := 'missing_blocker';
      continue;
    end if;
    if p_wait then
      perform 1 from skep.chain c where c.id = v_edge.blocker_id for share;
    else
      perform 1 from skep.chain c where c.id = v_edge.blocker_id for share skip locked;
    end if;
    if not found then
      v_answer[v_edge.item] := 'busy';
    elsif exists (
      with recursive awaited as (
        select v_edge.blocker_id as chain_id
        union
        select b.chain_id
        from awaited a
        cross join lateral (
          select o.job_id from skep.open_job o
          where o.chain_id = a.chain_id and o.open_blockers > 0 offset 0
        ) o
        cross join lateral (
          select b.chain_id from skep.blocker b where b.job_id = o.job_id offset 0
        ) b
      )
      select from awaited a where a.chain_id = p_chain_id[v_edge.item])
    then
      v_answer[v_edge.item] := 'cyclic';
    end if;
  end loop;
  return v_answer;
end $$;

-- chain_prune: delete chains that closed long ago.
-- Takes   p_before: closed before this. p_state: only in these states. p_limit: chains to look at.
--         p_after_at, p_after_id: where the last call stopped; null to begin.
-- Returns one row: deleted (how many), seen_at and seen_id (where to go on; null at the end).
-- Locks   skep.chain rows for update, skipping locked ones; then their other rows; then keys of
--         pruned chains, skipping locked ones.
-- Why     Oldest first, in batches that cost what they delete. A chain referenced by a job of
--         another chain stays until that one is gone; the next run finds it again. A key that is
--         held longer than its chain is kept stays without it, until its time is over.
create function skep.chain_prune(
  p_before timestamptz, p_state text[], p_limit integer, p_after_at timestamptz, p_after_id uuid)
returns table (deleted integer, seen_at timestamptz, seen_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  v_old uuid[];
  v_last record;
  v_count integer;
begin
  select array_agg(c.id) into v_old from (
    select c.id from skep.chain c
    where c.closed_at < p_before
      and (c.closed_at, c.id) > (coalesce(p_after_at, '-infinity'),
                                 coalesce(p_after_id, '00000000-0000-0000-0000-000000000000'))
    order by c.closed_at, c.id limit p_limit
    for update skip locked
  ) c;
  select c.closed_at, c.id into v_last from skep.chain c
  where c.id = any (v_old) order by c.closed_at desc, c.id desc limit 1;
  select count(*) into v_count from skep.chain_erase(array(
    select c.id from skep.chain c
    where c.id = any (v_old) and c.state = any (p_state)
      and not exists (
        select from skep.blocker b join skep.job j on j.id = b.job_id
        where b.chain_id = c.id and j.chain_id <> c.id)), true);
  delete from skep.chain_key k
  using (
    select k.type_id, k.key from skep.chain_key k
    where k.is_pruned and k.held_until < 'infinity' and k.held_until <= skep.now()
    order by k.held_until limit p_limit
    for update skip locked
  ) x
  where k.type_id = x.type_id and k.key = x.key;
  return query
  select v_count,
         case when cardinality(v_old) = p_limit then v_last.closed_at end,
         case when cardinality(v_old) = p_limit then v_last.id end;
end $$;

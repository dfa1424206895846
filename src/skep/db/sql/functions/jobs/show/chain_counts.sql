-- chain_counts: how many chains there are in each state.
-- Takes   p_bound: how many of a state to count.
-- Returns per state: state, count, is_exact; if that is false there are at least so many.
-- Why     Counters would be written by every chain. Completed chains have no index of their own, for
--         nearly all chains are: they are counted among the last p_bound that ended.
create function skep.chain_counts(p_bound integer)
returns table (state text, count bigint, is_exact boolean)
language sql stable as $$
  select s.state, n.count, n.count < p_bound
  from unnest('{open,failed,cancelled}'::text[]) s(state)
  cross join lateral (
    select count(*) from (
      select from skep.chain c
      where c.state = s.state and c.state <> 'completed' limit p_bound) c
  ) n
  union all
  select 'completed', count(*) filter (where c.state = 'completed'), count(*) < p_bound
  from (
    select c.state from skep.chain c
    where c.closed_at is not null order by c.closed_at desc, c.id desc limit p_bound
  ) c;
$$;

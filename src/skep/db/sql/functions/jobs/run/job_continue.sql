-- job_continue: add the next jobs of chains.
-- Takes   p_now, and per ended job, in parallel arrays: p_answer (only settled ones count),
--         p_chain_id, p_outcome (only continued ones count) and the next job as in job_settle.
-- Locks   none beyond the new rows; the caller holds the chains and the blockers.
-- Why     A chain has one open job: the previous one is gone by now, and an index refuses a second.
create function skep.job_continue(
  p_answer text[], p_chain_id uuid[], p_outcome text[], p_next_id uuid[], p_next_type text[],
  p_next_input text[], p_next_priority smallint[], p_next_max_attempts integer[],
  p_next_limit_key text[], p_next_trace text[], p_delay_s double precision[],
  p_due_at timestamptz[], p_blocked_item integer[], p_blocker_id uuid[], p_on_failure text[],
  p_now timestamptz)
returns void
language plpgsql as $$
declare
  v_is_next boolean[];
  v_position integer[];
  v_type_id integer[];
begin
  if exists (
    select from unnest(p_next_type) u(name)
    where u.name is not null
      and not exists (select from skep.job_type t where t.name = u.name))
  then
    perform skep.job_type_ensure(array_remove(p_next_type, null));
  end if;
  update skep.chain c set last_job_id = u.next_id, last_position = c.last_position + 1
  from unnest(p_chain_id, p_next_id, p_outcome, p_answer) u(chain_id, next_id, outcome, answer)
  where c.id = u.chain_id and u.answer = 'settled' and u.outcome = 'continued';

  select array_agg(u.answer = 'settled' and u.outcome = 'continued' order by u.item),
         array_agg(c.last_position order by u.item), array_agg(t.id order by u.item)
  into v_is_next, v_position, v_type_id
  from unnest(p_answer, p_outcome, p_chain_id, p_next_type) with ordinality
    u(answer, outcome, chain_id, type, item)
  left join lateral (
    select c.last_position from skep.chain c where c.id = u.chain_id offset 0
  ) c on true
  left join lateral (select t.id from skep.job_type t where t.name = u.type offset 0) t on true;
  perform skep.job_add(
    p_next_id, p_chain_id, v_position, v_type_id, p_next_input, p_next_priority, p_due_at,
    p_delay_s, p_next_max_attempts, p_next_limit_key, p_next_trace, v_is_next, p_blocked_item,
    p_blocker_id, p_on_failure, p_now);
end $$;

/*
job_continue: add the next jobs of chains.

Takes   p_now, and per job that ended, in parallel arrays: p_answer (only those that are settled
        count), p_chain_id, p_outcome (only continued ones count) and the next job as in job_settle.
Returns nothing.
Locks   the caller holds the chains and the blockers.
Why     A chain has one open job: the one before is gone when this is called, and an index refuses a
        second.
*/
create function skep.job_continue(
  p_answer text[], p_chain_id uuid[], p_outcome text[], p_next_id uuid[], p_next_type text[],
  p_next_input text[], p_next_priority smallint[], p_next_max_attempts integer[],
  p_next_limit_key text[], p_next_trace text[], p_delay_s double precision[],
  p_due_at timestamptz[], p_blocked_item integer[], p_blocker_id uuid[], p_is_fatal boolean[],
  p_now timestamptz)
returns void
language plpgsql as $$
#variable_conflict use_column
declare
  v_fallen uuid[];
begin
  perform skep.job_type_ensure(array_remove(p_next_type, null));
  update skep.chain c set last_job_id = u.next_id, last_position = c.last_position + 1
  from unnest(p_chain_id, p_next_id, p_outcome, p_answer) u(chain_id, next_id, outcome, answer)
  where c.id = u.chain_id and u.answer = 'settled' and u.outcome = 'continued';

  perform skep.job_add(
    array_agg(u.next_id), array_agg(u.chain_id), array_agg(c.last_position), array_agg(t.id),
    array_agg(u.input), array_agg(u.priority),
    array_agg(greatest(p_now, coalesce(u.due_at, p_now + make_interval(secs => u.delay_s)))),
    array_agg(u.max_attempts), array_agg(u.limit_key), array_agg(u.trace),
    e.job_id, e.blocker_id, e.is_fatal, p_now)
  from unnest(p_answer, p_chain_id, p_outcome, p_next_id, p_next_type, p_next_input,
              p_next_priority, p_next_max_attempts, p_next_limit_key, p_next_trace, p_delay_s,
              p_due_at)
    u(answer, chain_id, outcome, next_id, type, input, priority, max_attempts, limit_key, trace,
      delay_s, due_at)
  join skep.chain c on c.id = u.chain_id
  join skep.job_type t on t.name = u.type
  cross join (
    select array_agg(p_next_id[b.item] order by b.place) as job_id,
           array_agg(b.blocker_id order by b.place) as blocker_id,
           array_agg(b.is_fatal order by b.place) as is_fatal
    from unnest(p_blocked_item, p_blocker_id, p_is_fatal) with ordinality
      b(item, blocker_id, is_fatal, place)
    where p_answer[b.item] = 'settled'
  ) e
  where u.answer = 'settled' and u.outcome = 'continued'
  group by e.job_id, e.blocker_id, e.is_fatal;

  select array_agg(distinct p_chain_id[b.item]) into v_fallen
  from unnest(p_blocked_item, p_blocker_id, p_is_fatal) b(item, blocker_id, is_fatal)
  join skep.chain c on c.id = b.blocker_id and c.state in ('failed', 'cancelled')
  where b.is_fatal and p_answer[b.item] = 'settled';
  if v_fallen is not null then
    perform skep.chain_close(
      skep.chain_fallout(v_fallen, false), 'failed', 'a chain it waits for did not complete',
      p_now);
  end if;
end $$;

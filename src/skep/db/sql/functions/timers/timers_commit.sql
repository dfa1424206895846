-- timers_commit: schedule, replace and cancel timers of many clients' calls, and remember the answer.
-- Takes   p_id: the broker's id of this execution. p_patience_ms: how long to wait for a row that
--         another transaction has locked. Per operation, in parallel arrays: p_call, the number of
--         its call; p_queue_id, null for a queue that does not exist; p_timer_key; and of one to
--         schedule, else null: p_partition, p_key, p_transaction_id, p_envelope as in
--         schedule_messages, p_delay_ms. p_order: the operations in the order of (queue, timer key).
-- Returns one row of arrays, per operation: status as scheduled, rescheduled, cancelled, absent, or
--         gone (a queue of its call does not exist any more, and nothing of the call was done);
--         transaction_id and deliver_at of the timer; seconds until then.
-- Locks   skep.queue rows for share, in id order; then the skep.scheduled rows of the timers, in
--         order of (queue, timer key).
-- Why     One statement per timer, in order, so that calls over the same timers never deadlock: a
--         timer that does not exist has no row to lock before it is inserted. A session that
--         sequences a timer holds its row until it is in the log: a cancel waits for it and finds
--         nothing, a schedule inserts a new timer. A timer that is being replaced is skipped there
--         and looked at again, with its new time. The answer is recorded in the same transaction,
--         since a repeated cancel would find nothing.
create function skep.timers_commit(
  p_id uuid, p_patience_ms integer, p_call integer[], p_order integer[], p_queue_id integer[],
  p_timer_key text[], p_partition text[], p_key bytea[], p_transaction_id text[],
  p_envelope bytea[], p_delay_ms bigint[])
returns table (
  status text[], transaction_id text[], deliver_at timestamptz[], seconds double precision[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_count constant integer := cardinality(p_call);
  v_now timestamptz;
  v_gone integer[];
  v_at integer;
  v_timer record;
begin
  perform set_config('lock_timeout', p_patience_ms::text, true) where p_patience_ms is not null;
  perform 1 from skep.queue q where q.id = any(p_queue_id) order by q.id for share;
  select coalesce(array_agg(distinct o.call), '{}') into v_gone
  from unnest(p_call, p_queue_id, p_envelope) o(call, queue_id, envelope)
  where o.envelope is not null and not exists (select from skep.queue q where q.id = o.queue_id);
  status := array_fill('absent'::text, array[v_count]);
  transaction_id := array_fill(null::text, array[v_count]);
  deliver_at := array_fill(null::timestamptz, array[v_count]);
  seconds := array_fill(null::double precision, array[v_count]);

  foreach v_at in array p_order loop
    v_now := skep.now();
    if p_call[v_at] = any(v_gone) then
      status[v_at] := 'gone';
      continue;
    elsif p_envelope[v_at] is null then
      delete from skep.scheduled s
      where s.queue_id = p_queue_id[v_at] and s.timer_key = p_timer_key[v_at]
      returning 'cancelled' as status, s.transaction_id, s.deliver_at into v_timer;
    else
      insert into skep.scheduled as s (
        id, queue_id, partition, key, nonce, transaction_id, envelope, deliver_at, created_at,
        timer_key)
      overriding system value
      select i.id, p_queue_id[v_at], p_partition[v_at], p_key[v_at], -i.id,
             p_transaction_id[v_at], p_envelope[v_at],
             v_now + p_delay_ms[v_at] * interval '1 millisecond', v_now, p_timer_key[v_at]
      from (select nextval('skep.scheduled_id_seq') as id) i
      on conflict (queue_id, timer_key) where timer_key is not null do update
      set partition = excluded.partition, key = excluded.key,
          transaction_id = excluded.transaction_id, envelope = excluded.envelope,
          deliver_at = excluded.deliver_at, rescheduled_at = excluded.created_at
      returning case when s.rescheduled_at is null then 'scheduled' else 'rescheduled' end as status,
                s.transaction_id, s.deliver_at into v_timer;
    end if;
    if found then
      status[v_at] := v_timer.status;
      transaction_id[v_at] := v_timer.transaction_id;
      deliver_at[v_at] := v_timer.deliver_at;
      seconds[v_at] := extract(epoch from v_timer.deliver_at - v_now);
    end if;
  end loop;

  insert into skep.settled_transaction (id, answer, settled_at)
  select p_id, json_build_object(
    'status', status, 'transaction_id', transaction_id, 'deliver_at', deliver_at,
    'seconds', seconds), skep.now()
  where status && array['scheduled', 'rescheduled', 'cancelled'];
  return next;
end $$;

-- schedule_claimed: schedule messages that applications staged for later.
-- Takes   p_id: ascending. The rest as schedule_messages.
-- Returns as schedule_messages. Scheduled ones and duplicates are no longer staged. No row if
--         another session has taken the messages.
-- Locks   as claim_staged; as schedule_messages; then as drop_staged.
-- Why     As sequence_staged, for messages that do not go into the log yet. The nonces are negative:
--         those of messages that were not staged are positive.
create function skep.schedule_claimed(
  p_id bigint[], p_queue_id integer[], p_partition text[], p_key bytea[], p_transaction_id text[],
  p_envelope bytea[], p_deliver_at timestamptz[], p_waiting_max integer)
returns table (item integer, outcome text, seconds double precision)
language plpgsql as $$
#variable_conflict use_column
declare
  v_settled bigint[] := '{}';
begin
  if not skep.claim_staged(p_id) then
    return;
  end if;
  for item, outcome, seconds in
    select s.item, s.outcome, s.seconds
    from skep.schedule_messages(
      p_queue_id, p_partition, p_key, p_transaction_id, p_envelope, p_deliver_at,
      array_fill(null::double precision, array[cardinality(p_id)]), p_waiting_max, false,
      array(select -u.id from unnest(p_id) with ordinality u(id, item) order by u.item)) s
    order by s.item
  loop
    if outcome in ('scheduled', 'duplicate') then
      v_settled := v_settled || p_id[item];
    end if;
    return next;
  end loop;
  perform skep.drop_staged(v_settled);
end $$;

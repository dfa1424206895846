-- restore_letters: make dead letters of messages that were redriven, to redrive them once more.
-- Takes   p_id: redriven letters; others are ignored.
-- Returns per letter whose message is still stored and whose group exists, the id of the new one.
-- Locks   skep.redriven_letter rows for update, in id order; the new rows.
-- Why     A redriven message is pushed under a transaction id made of the letter's id, so that it
--         happens once. Who wants it again needs a letter with another id. The record of the first
--         redrive goes: a request that is repeated finds no letter.
create function skep.restore_letters(p_id bigint[])
returns table (id bigint, new_id bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_letter record;
begin
  for v_letter in
    select r.*, coalesce(
             skep.read_envelope(r.to_partition_id, r.to_offset),
             skep.read_envelope(r.partition_id, r.message_offset)) as envelope
    from skep.redriven_letter r
    where r.id = any(p_id)
      and exists (select from skep.consumer_group g where g.id = r.group_id)
    order by r.id for update of r
  loop
    continue when v_letter.envelope is null;
    insert into skep.dead_letter (
      partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
      created_at, failed_at)
    values (
      v_letter.partition_id, v_letter.group_id, v_letter.queue_id, v_letter.message_offset,
      v_letter.transaction_id, v_letter.envelope::json, v_letter.error, v_letter.failures,
      v_letter.created_at, v_letter.failed_at)
    on conflict (partition_id, group_id, message_offset) do nothing
    returning dead_letter.id into new_id;
    continue when not found;
    delete from skep.redriven_letter r where r.id = v_letter.id;
    id := v_letter.id;
    return next;
  end loop;
end $$;

-- finish_archive: advance a queue's watermark past what a run copied.
-- Takes   p_run_id, p_attempt: from begin_archive. p_messages: how many were copied.
-- Returns whether the run was still this attempt's; false if it was taken over or finished, or the
--         queue was deleted.
-- Locks   the skep.archive row for update, then the skep.archive_run row.
-- Why     Called in the transaction that commits the files to the catalog, before that: a second
--         attempt waits here and learns that there is nothing to commit.
create function skep.finish_archive(p_run_id uuid, p_attempt integer, p_messages bigint)
returns boolean
language plpgsql as $$
declare
  v_queue_id integer;
  v_upto xid8;
begin
  perform set_config('synchronous_commit', 'on', true);
  perform 1 from skep.archive_run r join skep.archive a on a.queue_id = r.queue_id
  where r.id = p_run_id for update of a;
  delete from skep.archive_run r where r.id = p_run_id and r.attempt = p_attempt
  returning r.queue_id, r.upto into v_queue_id, v_upto;
  if not found then
    return false;
  end if;
  update skep.archive a
  set upto = v_upto, messages = a.messages + p_messages, archived_at = skep.now()
  where a.queue_id = v_queue_id;
  return true;
end $$;

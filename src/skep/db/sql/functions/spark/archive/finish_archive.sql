/*
finish_archive: move the watermark of a queue over what a run has copied.

Takes   p_run_id, p_attempt: the run as begin_archive told it. p_messages: how many were copied.
Returns whether the run was still that attempt's to finish; false if somebody has taken it over,
        finished it, or deleted the queue.
Locks   the skep.archive row for update, then the skep.archive_run row, as begin_archive.
Why     In the transaction that commits the files to the catalog, before that: whoever comes
        second waits here and learns that there is nothing to commit.
*/
create function skep.finish_archive(p_run_id uuid, p_attempt integer, p_messages bigint)
returns boolean
language plpgsql as $$
#variable_conflict use_column
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

/*
start_redrive: note down a redrive of all dead letters that match a filter now.

Takes   p_id; p_filter, p_target: as the broker will read them again; p_letters_max: no more than
        so many, or null; p_total, p_is_total_estimate; p_owner: the process that will do it.
Returns whether it is new: a job of this id that exists already stays as it is.
Locks   none beyond the new row.
Why     The highest letter id of this moment is the end of the job. A message that is redriven and
        dies again gets a higher one; without the bound a job could chase its own tail for ever.
*/
create function skep.start_redrive(
  p_id uuid, p_filter json, p_target json, p_letters_max bigint, p_total bigint,
  p_is_total_estimate boolean, p_owner uuid) returns boolean
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
begin
  insert into skep.redrive (
    id, filter, target, letters_max, last_letter_id, total, is_total_estimate, owner, created_at,
    progressed_at)
  values (
    p_id, p_filter, p_target, p_letters_max,
    coalesce((select max(d.id) from skep.dead_letter d), 0),
    p_total, p_is_total_estimate, p_owner, v_now, v_now)
  on conflict (id) do nothing;
  return found;
end $$;

-- start_redrive: record a redrive of all dead letters that match a filter now.
-- Takes   p_filter, p_target: as the broker reads them back; p_letters_max: null for no limit;
--         p_owner: the process that runs it.
-- Returns whether it is new; an existing job of this id is left unchanged.
-- Locks   none beyond the new row.
-- Why     The highest letter id of this moment ends the job. A message that dies again gets a
--         higher id; without the bound a job could chase its own letters for ever.
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

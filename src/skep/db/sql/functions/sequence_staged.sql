/*
sequence_staged: move staged messages into the log.

Takes   p_id: the staged messages, ascending. p_queue_id, p_version: as check_rules. p_lane_id,
        p_vouched_to, p_vouched_since, p_lane, p_key, p_envelope: as push_distinct; every lane gets
        something. Messages whose key occurs earlier in the call are in p_id alone.
Returns as push_distinct; nothing when the messages were taken by somebody else.
Raises  SK409 when a queue was configured anew or a lane is gone; nothing has happened then.
Locks   as take_staged; skep.partition rows for no key update, in id order; then as push_distinct.
Why     One transaction takes the messages off the staged ones and stores them: they arrive once,
        whatever dies in between. A message that is stored already, inside its queue's window, is
        dropped as any repeated push.
*/
create function skep.sequence_staged(
  p_id bigint[], p_queue_id integer[], p_version integer[], p_lane_id bigint[],
  p_vouched_to bigint[], p_vouched_since timestamptz[], p_lane integer[], p_key bytea[],
  p_envelope bytea[])
returns table (
  lane integer, stored_item integer[], first bigint, created_at timestamptz,
  duplicate_item integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_lanes integer;
begin
  perform skep.check_rules(p_queue_id, p_version);
  if not skep.take_staged(p_id) then
    return;
  end if;
  perform 1
  from unnest(p_lane_id) i(id)
  cross join lateral (
    select 1 from skep.partition p where p.id = i.id for no key update
  ) p;
  return query
  select * from skep.push_distinct(
    p_lane_id, p_vouched_to, p_vouched_since, p_lane, p_key, p_envelope);
  get diagnostics v_lanes = row_count;
  if v_lanes < cardinality(p_lane_id) then
    raise exception using errcode = 'SK409', message = 'a queue was deleted meanwhile';
  end if;
end $$;

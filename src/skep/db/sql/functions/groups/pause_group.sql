/*
pause_group: stop or resume the delivery to a consumer group.

Takes   p_group_id, p_is_paused.
Returns nothing.
Raises  SK404 when the group does not exist (any more).
Locks   the skep.consumer_group row.
Why     Leases that are held stay, so that what was delivered can be acknowledged; polls get
        nothing more until the group is resumed.
*/
create function skep.pause_group(p_group_id integer, p_is_paused boolean) returns void
language plpgsql as $$
begin
  perform skep.assert_group(p_group_id);
  update skep.consumer_group g set is_paused = p_is_paused where g.id = p_group_id;
end $$;

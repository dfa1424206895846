-- pause_group: stop or resume delivery to a consumer group.
-- Raises  SK404 if the group does not exist.
-- Locks   the skep.consumer_group row, then as expect_progress.
-- Why     Leases stay, so that delivered messages can be acknowledged; polls get nothing.
create function skep.pause_group(p_group_id integer, p_is_paused boolean) returns void
language plpgsql as $$
begin
  perform skep.assert_group(p_group_id);
  update skep.consumer_group g set is_paused = p_is_paused where g.id = p_group_id;
  if not p_is_paused then
    perform skep.expect_progress(array[p_group_id]);
  end if;
end $$;

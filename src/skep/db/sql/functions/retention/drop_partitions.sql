-- drop_partitions: delete partitions with everything that belongs to them.
-- Locks   skep.partition rows for update, in id order; then their skep.cursor rows in
--         (partition_id, group_id) order; then as drop_stream_state.
-- Why     The one list of what belongs to a partition. Sessions that hold a partition or cursor are
--         waited for, so nothing is written after the deletion.
create function skep.drop_partitions(p_partition_id bigint[]) returns void
language plpgsql as $$
begin
  perform 1 from skep.partition p where p.id = any(p_partition_id) order by p.id for update;
  perform 1 from skep.cursor c where c.partition_id = any(p_partition_id)
  order by c.partition_id, c.group_id for update;
  delete from skep.segment s where s.partition_id = any(p_partition_id);
  delete from skep.deleted_message d where d.partition_id = any(p_partition_id);
  delete from skep.dead_letter d where d.partition_id = any(p_partition_id);
  delete from skep.cursor c where c.partition_id = any(p_partition_id);
  delete from skep.partition p where p.id = any(p_partition_id);
  perform skep.drop_stream_state(p_partition_id);
end $$;

-- refuse_deferred: refuse a transaction whose partitions have deferred operations.
-- Raises  SK409 with the message deferred and the 1-based position of the partition as detail.
-- Why     A transaction cannot wait in parts behind the operations of its partitions. No lock is
--         needed: an operation is committed before its client hears of it, and later requests find
--         it here.
create function skep.refuse_deferred(p_partition_id bigint[], p_ack_partition_id bigint[])
returns void
language plpgsql as $$
declare
  v_item bigint;
begin
  select min(u.item) into v_item
  from unnest(p_partition_id || p_ack_partition_id) with ordinality u(id, item)
  cross join lateral (
    select p.deferred_pushes, p.deferred_acks from skep.partition p where p.id = u.id offset 0
  ) p
  where case when u.item <= cardinality(p_partition_id) then p.deferred_pushes
             else p.deferred_acks end > 0;
  if v_item is not null then
    raise exception using errcode = 'SK409', message = 'deferred', detail = v_item::text;
  end if;
end $$;

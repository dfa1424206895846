-- settle_operations: acknowledge and push together, or raise and change nothing.
-- Takes   p_required_lease: must be held. p_ack_*: per ack as ack_messages. p_may_be_repetition:
--         false if the caller does more than this, which a repetition would do again. The rest as
--         push_distinct.
-- Returns one row. ack_*: parallel, per ack as ack_messages. The rest as push_distinct.
-- Raises  SK409, with the 1-based position as detail: required_lease (of the lease), partition_gone
--         (of the partition), an outcome of ack_messages or no_group (of the ack).
-- Locks   the partitions pushed to, as lock_partitions; then skep.cursor rows, those acknowledged
--         and the idle ones of these partitions, in one pass as lock_cursors; then skep.partition
--         rows for share, skipping locked ones.
-- Why     Partitions before cursors, each in ascending order, so it cannot deadlock with pushes,
--         acks, polls or other transactions. One pass locks the cursors of both kinds, because an
--         idle cursor of a pushed partition may precede an acknowledged one. The pass follows the
--         partitions: while they are held, none of their cursors can become idle, so what
--         append_segments finds idle later is locked already. ack_messages takes partitions under
--         cursors without waiting. An ack without a lease is fenced by the required ones: where the
--         last claim has another lease, theirs is lost. Completing a finished message is fine while
--         the lease is held (a later message of the batch completed it); otherwise another consumer
--         did the work. Unless everything to push is stored already: then this transaction is a
--         repetition, and must not be refused, if it may be one.
create function skep.settle_operations(
  p_required_lease uuid[], p_ack_partition_id bigint[], p_ack_group text[], p_ack_lease_id uuid[],
  p_ack_offset bigint[], p_ack_key bytea[], p_ack_status text[], p_ack_error text[],
  p_push_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_push_partition integer[], p_push_key bytea[], p_push_envelope bytea[],
  p_may_be_repetition boolean default true)
returns table (
  ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
  ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
  partition_first bigint[], partition_created_at timestamptz[],
  gap_first bigint[], gap_keys bytea[], gap_created_at timestamptz[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_group_id integer[];              -- by ack, null where there is no such group ...
  v_head bigint[];                   -- ... and the head of its partition
  v_lease_id uuid[];
  v_is_held boolean[];
  v_has_all boolean := true;         -- every ack has an outcome
  v_refusal text;
  v_refused integer;
begin
  perform skep.lock_partitions(p_push_partition_id);
  select array_agg(g.id order by a.item), array_agg(p.head order by a.item) into v_group_id, v_head
  from unnest(p_ack_partition_id, p_ack_group) with ordinality a(partition_id, group_name, item)
  left join lateral (
    select p.queue_id, p.head from skep.partition p where p.id = a.partition_id offset 0
  ) p on true
  left join lateral (
    select g.id from skep.consumer_group g
    where g.queue_id = p.queue_id and g.name = a.group_name offset 0
  ) g on true;
  perform skep.lock_cursors(
    p_ack_partition_id || array_agg(k.partition_id), v_group_id || array_agg(k.group_id))
  from unnest(p_push_partition_id) i(id)
  cross join lateral (
    select k.partition_id, k.group_id from skep.cursor k
    where k.partition_id = i.id and k.available_at is null offset 0
  ) k;
  v_now := skep.now();

  select 'required_lease', min(l.item) into v_refusal, v_refused
  from unnest(p_required_lease) with ordinality l(lease_id, item)
  where not exists (
    select 1 from skep.cursor c
    where c.lease_id = l.lease_id and c.leased is not null and c.available_at > v_now)
  having count(*) > 0;

  if cardinality(p_ack_partition_id) > 0 then
    select array_agg(f.lease_id order by f.item),
           array_agg(f.is_leased and f.lease_id = f.claim_id order by f.item)
    into v_lease_id, v_is_held
    from (
      select a.item, k.lease_id as claim_id,
             coalesce(k.leased is not null and k.available_at > v_now, false) as is_leased,
             case
               when a.lease_id is not null or cardinality(p_required_lease) = 0 then a.lease_id
               when k.lease_id is null or k.lease_id = any(p_required_lease) then k.lease_id
               else p_required_lease[1]
             end as lease_id
      from unnest(p_ack_partition_id, v_group_id, p_ack_lease_id)
             with ordinality a(partition_id, group_id, lease_id, item)
      left join lateral (
        select k.lease_id, k.leased, k.available_at from skep.cursor k
        where k.partition_id = a.partition_id and k.group_id = a.group_id offset 0
      ) k on true
    ) f;
    select array_agg(a.item), array_agg(a.outcome), array_agg(a.lease_released),
           array_agg(a.has_more), array_agg(a.queue_id)
    into ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id
    from skep.ack_messages(
      p_ack_partition_id, p_ack_group, v_lease_id,
      -- An id may name an offset that does not exist yet; only stored messages can be done.
      (select array_agg(case when a.at <= a.head then a.at end order by a.item)
       from unnest(p_ack_offset, v_head) with ordinality a(at, head, item)),
      p_ack_key, p_ack_status, p_ack_error, true) a;
    v_has_all := coalesce(cardinality(ack_item), 0) = cardinality(p_ack_partition_id);
    if v_refusal is null then
      select case when o.outcome = 'noop' then 'already_done' else o.outcome end, o.item
      into v_refusal, v_refused
      from unnest(ack_outcome, ack_item) o(outcome, item)
      where o.outcome in ('lease_lost', 'beyond_lease', 'not_found', 'already_done')
         or (o.outcome = 'noop' and v_is_held[o.item] is not true)
      order by o.item limit 1;
    end if;
    if v_refusal is null and not v_has_all then
      select 'no_group', min(i.item) into v_refusal, v_refused
      from generate_series(1, cardinality(p_ack_partition_id)) i(item)
      where i.item <> all(coalesce(ack_item, '{}'));
    end if;
  end if;
  if v_refusal is not null and (
    not p_may_be_repetition or cardinality(p_push_partition) = 0 or not v_has_all
    or 'noop' <> any(ack_outcome))
  then
    raise exception using errcode = 'SK409', message = v_refusal, detail = v_refused::text;
  end if;

  select d.* into strict
    push_offset, push_is_duplicate, partition_first, partition_created_at, gap_first, gap_keys,
    gap_created_at
  from skep.push_distinct(
    p_push_partition_id, p_guaranteed_to, p_guaranteed_since, p_push_partition, p_push_key,
    p_push_envelope) d;
  if v_refusal is not null and cardinality(array_remove(partition_first, null)) > 0 then
    raise exception using errcode = 'SK409', message = v_refusal, detail = v_refused::text;
  end if;
  if array_position(push_offset, null) is not null then
    raise exception using errcode = 'SK409', message = 'partition_gone',
      detail = p_push_partition[array_position(push_offset, null)]::text;
  end if;
  return next;
end $$;

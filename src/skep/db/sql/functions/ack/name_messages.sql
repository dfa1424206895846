-- name_messages: say which messages the acks of a call mean that name only a transaction id.
-- Takes   p_items: positions in the arrays, which are those of ack_messages.
-- Returns per ack without an offset: place (1-based, in p_items), at (null: no such message),
--         is_alone: it must not complete other messages, is_doubtful: another ack of its
--         transaction id says otherwise.
-- Locks   none; the caller holds the cursor.
-- Why     Several messages under a lease may have the same transaction id. An ack means the newest
--         that is not answered, in this call or before; without a lease the one nearest to the
--         cursor. A message that was never delivered is meant only if no other has the id: it
--         must not be completed by an ack that comes again. Of as many acks as messages
--         each gets its own. While some stay unnamed, an ack speaks for its own message only. Where
--         such acks differ nothing tells which message failed: none of them counts as completed,
--         and the most severe goes to the oldest.
create function skep.name_messages(
  p_cursor skep.cursor, p_items integer[], p_offset bigint[], p_key bytea[], p_status text[])
returns table (place integer, at bigint, is_alone boolean, is_doubtful boolean)
language sql stable as $$
  select u.place,
         case when o.count = 0 then p.places[cardinality(p.places)]
              else o.meant[least(u.rank, cardinality(o.meant))] end,
         o.count > 1 and (cardinality(a.acks) < o.count or a.is_mixed),
         o.count > 1 and a.is_mixed
  from (
    select p_key[i.item] as key, count(distinct p_status[i.item]) > 1 as is_mixed,
           array_agg(i.place::integer order by array_position(
             array['dlq', 'failed', 'retry', 'completed'], p_status[i.item]), i.item) as acks
    from unnest(p_items) with ordinality i(item, place)
    where p_offset[i.item] is null and p_key[i.item] <> ''
    group by p_key[i.item]
  ) a
  cross join lateral (
    select coalesce(
      skep.find_offsets(
        p_cursor.partition_id, p_cursor.acked,
        coalesce(p_cursor.leased, greatest(p_cursor.delivered, p_cursor.acked)), a.key),
      case when p_cursor.leased is null then
        skep.find_offsets(p_cursor.partition_id, p_cursor.acked, null, a.key)
      end) as places
    offset 0
  ) p
  cross join lateral (
    select count(*) as count,
           array_agg(f.at order by f.at) filter (where f.rank <= cardinality(a.acks)) as meant
    from (
      select n.at, row_number() over (
               order by case when p_cursor.leased is null then n.at else -n.at end) as rank
      from unnest(p.places) n(at)
      where n.at > p_cursor.acked
        and not coalesce(p_cursor.done, '{}') + coalesce(p_cursor.nacked, '{}') @> n.at
        and not exists (select from unnest(p_items) i(item) where p_offset[i.item] = n.at)
    ) f
  ) o
  cross join lateral unnest(a.acks) with ordinality u(place, rank);
$$;

-- delivery_state: what a message is to one group.
-- Takes   columns of the group's cursor; p_failed_offset: null where retrying and waiting are the
--         same.
-- Returns done; retrying (it failed and waits for its next delivery); leased (under a live lease,
--         unanswered); else waiting.
-- Why     The one definition: message_standing makes the state of a message of these, and
--         message_deliveries lists them. One expression, which PostgreSQL inlines.
create function skep.delivery_state(
  p_offset bigint, p_acked bigint, p_done int8multirange, p_leased bigint,
  p_nacked int8multirange, p_available_at timestamptz, p_failed_offset bigint[],
  p_now timestamptz) returns text
language sql immutable as $$
  select case
    when p_offset <= p_acked or p_done @> p_offset then 'done'
    when p_nacked @> p_offset then 'retrying'
    when p_offset <= p_leased and p_available_at > p_now then 'leased'
    when p_available_at > p_now and p_offset = any(p_failed_offset) then 'retrying'
    else 'waiting' end;
$$;

-- check_message: check that a message enqueued by SQL can be stored and delivered.
-- Takes   p_payload: text that must be JSON.
-- Raises  SK400 with the reason; 22P02 for a payload that is not JSON.
-- Locks   none.
-- Why     The rules of a push over HTTP, while the transaction can still react. The payload is
--         parsed as json, never jsonb, which would reorder it and refuse an escaped NUL.
create function skep.check_message(
  p_queue text, p_partition text, p_transaction_id text, p_payload text, p_headers jsonb,
  p_ttl_s double precision) returns void
language plpgsql stable as $$
declare
  v_refusal text;
begin
  v_refusal := case
    when coalesce(p_queue, '') = '' then 'a message needs a queue'
    when length(p_queue) > 255 then 'queue is longer than 255 characters'
    when length(p_partition) > 255 then 'partition is longer than 255 characters'
    when length(p_transaction_id) > 255 then 'transaction_id is longer than 255 characters'
    when p_payload is null then 'a message needs a payload; that of nothing is the JSON null'
    when octet_length(p_payload) > 16777216 then 'payload is larger than 16 MiB'
    when not (p_ttl_s > 0 and p_ttl_s <= 316224000) then
      'ttl_s must be above 0 and at most 316224000'
    when p_headers is null then null
    when jsonb_typeof(p_headers) <> 'object' then 'headers must be a JSON object'
    when octet_length(p_headers::text) > 8192 then 'headers are larger than 8192 bytes'
    when (select count(*) from jsonb_object_keys(p_headers)) > 64 then 'more than 64 headers'
    when exists (select from jsonb_each(p_headers) h
                 where jsonb_typeof(h.value) in ('object', 'array')) then
      'the value of a header must be a string, a number, a boolean or null'
  end;
  if v_refusal is null and json_typeof(p_payload::json) in ('array', 'object')
     and skep.json_depth(p_payload) > 500 then
    v_refusal := 'payload is nested deeper than 500 levels';
  end if;
  if v_refusal is not null then
    raise exception using errcode = 'SK400', message = v_refusal;
  end if;
end $$;

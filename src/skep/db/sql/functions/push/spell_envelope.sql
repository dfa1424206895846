-- spell_envelope: build the stored form of a message.
-- Takes   p_payload: JSON, kept as it is; p_trace_id, p_headers, p_expires_at: null for none.
-- Returns the envelope, in the layout of skep.model.envelopes.
-- Locks   none.
-- Why     Brokers cut an envelope at the first `,"data":`. The part before cannot contain these
--         characters: strings escape their quotes, and headers have a space after each comma.
create function skep.spell_envelope(
  p_transaction_id text, p_payload text, p_trace_id uuid, p_headers jsonb,
  p_expires_at timestamptz) returns text
language sql stable as $$
  select '{'
    || coalesce('"expiresAt":"' || to_char(
         p_expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '",', '')
    || '"transactionId":' || to_json(p_transaction_id)::text
    || ',"traceId":' || coalesce('"' || p_trace_id::text || '"', 'null')
    || ',"producerSub":null,'
    || coalesce('"headers":{' || (
         select string_agg(to_json(h.name)::text || ':' || h.value::text, ', ')
         from jsonb_each(p_headers) h(name, value)) || '},', '')
    || '"data":' || p_payload || '}';
$$;

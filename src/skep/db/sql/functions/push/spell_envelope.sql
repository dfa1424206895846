/*
spell_envelope: a message as it is stored.

Takes   p_transaction_id; p_payload: JSON, kept as it is; p_trace_id, p_headers, p_expires_at: null
        when there is none.
Returns the envelope, in the layout of skep.model.envelopes.
Locks   none.
Why     What SQL pushes is read by brokers, which cut it at the first `,"data":`. What stands before
        must not contain these characters: strings escape their quotes, and headers are written with
        a space behind each comma.
*/
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

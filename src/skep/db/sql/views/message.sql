/*
message: the log as rows, for people and for plain SQL.

One row per message that was not deleted. payload and envelope are json, not jsonb: the text is
what the producer sent, with its key order, its duplicates and its escapes.
*/
create view skep.message as
select q.name as queue,
       p.name as partition,
       s.first + e.position - 1 as "offset",
       e.envelope ->> 'transactionId' as transaction_id,
       s.created_at,
       e.envelope -> 'data' as payload,
       e.envelope ->> 'traceId' as trace_id,
       e.envelope ->> 'producerSub' as producer_sub,
       s.partition_id,
       s.queue_id
from skep.segment s
join skep.partition p on p.id = s.partition_id
join skep.queue q on q.id = s.queue_id
cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
  with ordinality e(envelope, position)
where json_typeof(e.envelope) <> 'null';

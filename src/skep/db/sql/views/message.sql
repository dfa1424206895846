-- message: the log as rows, for people and for plain SQL. One row per message that was not deleted.
-- payload is json, not jsonb: the text is what the producer sent, with its key order, its
-- duplicates and its escapes. An envelope is cut at its last member, the data, and only the head is
-- read as an object: -> and ->> decode every string they pass, and one payload with an escaped NUL
-- would make the view fail.
create view skep.message as
select q.name as queue,
       p.name as partition,
       s.first + e.position - 1 as "offset",
       h.head ->> 'transactionId' as transaction_id,
       s.created_at,
       substr(e.envelope::text, h.length + 9, length(e.envelope::text) - h.length - 9)::json
         as payload,
       h.head ->> 'traceId' as trace_id,
       h.head ->> 'producerSub' as producer_sub,
       s.partition_id,
       s.queue_id
from skep.segment s
join skep.partition p on p.id = s.partition_id
join skep.queue q on q.id = s.queue_id
cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
  with ordinality e(envelope, position)
cross join lateral (
  select length(t.head) as length,
         case when json_typeof(e.envelope) = 'object' then (t.head || '}')::json end as head
  from (select split_part(e.envelope::text, ',"data":', 1) as head) t
) h
where h.head is not null;

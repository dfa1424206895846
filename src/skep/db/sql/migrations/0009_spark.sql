/*
What readers on Spark need: to be told what was removed before they had read it, and to be
remembered by name.
*/

-- Segments of a queue that were removed, whoever did it: retention, an overflow, a person. Only
-- the newest removal of a queue stays: it reaches as far as those before it.
create table skep.removed_span (
  id bigint generated always as identity primary key,
  queue_id integer not null,
  xid xid8 not null default pg_current_xact_id(),  -- of the removal
  upto xid8 not null,                              -- the newest transaction that lost a segment
  created_to timestamptz not null,                 -- the newest segment removed
  removed_at timestamptz not null default clock_timestamp()
);
create index removed_span__queue on skep.removed_span (queue_id, upto);

/*
A trigger, because there are several ways to remove segments and none may be forgotten; once per
statement, it costs them next to nothing. Its function is made here and not among the functions: a
function that a trigger uses cannot be dropped and created anew.

Nobody waits here: rows of a removal that is still under way are left to the next one.
*/
create function skep.note_removal () returns trigger
language plpgsql as $$
begin
  with gone as (
    select d.queue_id, max(d.xid::text::numeric)::text::xid8 as upto,
           max(d.created_at) as created_to
    from removed d join skep.queue q on q.id = d.queue_id
    group by d.queue_id
  ),
  outdated as (
    select r.id from gone g
    join skep.removed_span r on r.queue_id = g.queue_id and r.upto <= g.upto
    limit 100 for update of r skip locked
  ),
  forgotten as (
    delete from skep.removed_span r using outdated o where r.id = o.id
  )
  insert into skep.removed_span (queue_id, upto, created_to)
  select g.queue_id, g.upto, g.created_to from gone g;
  return null;
end $$;

create trigger segment__note_removal
  after delete on skep.segment
  referencing old table as removed
  for each statement execute function skep.note_removal ();

-- A reader on Spark that has a name (its consumer group), and how far it has come. What retention
-- keeps for it is in skep.hold, one row per queue.
create table skep.reader (
  name text primary key constraint reader__name_length check (length(name) <= 255),
  queues text[] not null,
  position json not null,
  updated_at timestamptz not null
);

-- list_uncreated: those of the functions $1 and the views $2 that schema skep does not have.
select 'functions/' || wanted.name || '.sql'
from unnest($1::text[]) wanted (name)
where not exists (
  select
  from pg_catalog.pg_proc routine
  where routine.pronamespace = 'skep'::regnamespace
  and routine.proname = wanted.name
)
union all
select 'views/' || wanted.name || '.sql'
from unnest($2::text[]) wanted (name)
where not exists (
  select
  from pg_catalog.pg_class view
  where view.relnamespace = 'skep'::regnamespace
  and view.relkind = 'v'
  and view.relname = wanted.name
);

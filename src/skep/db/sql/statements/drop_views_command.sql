-- drop_views_command: the command that drops the views named in $1.
-- One command for all of them, because views may depend on each other. NULL if there are none.
select 'drop view ' || string_agg(view.oid::regclass::text, ', ')
from pg_catalog.pg_class view
where view.relnamespace = 'skep'::regnamespace
and view.relkind = 'v'
and view.relname = any($1::text[]);

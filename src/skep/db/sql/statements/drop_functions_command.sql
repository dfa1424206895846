-- drop_functions_command: the command that drops every overload of the functions named in $1.
-- One command for all of them, because functions may depend on each other. NULL if there are none.
select 'drop routine ' || string_agg(routine.oid::regprocedure::text, ', ')
from pg_catalog.pg_proc routine
where routine.pronamespace = 'skep'::regnamespace
and routine.proname = any($1::text[]);

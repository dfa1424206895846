-- system_identity: identify the installation in which transaction ids and partition ids are valid.
-- Returns the identity of the server it was made on, if this one has adopted it, else of this one;
--         then a colon and the schema's name unless it is the default.
-- Why     A dump restored elsewhere keeps the archive's watermarks, but its transaction ids mean
--         other transactions there; pg_upgrade keeps them, and gives the server another identifier.
--         Two installations in one database share transactions, but neither partitions nor the
--         archive directory, which is named after this. The default schema is spelled in two parts
--         because installing replaces its name.
create function skep.system_identity() returns text
language sql stable as $$
  select coalesce((select i.name from skep.identity i where i.server = s.id), s.id)
         || coalesce(':' || nullif('skep', 'sk' || 'ep'), '')
  from skep.server_identity() s(id);
$$;

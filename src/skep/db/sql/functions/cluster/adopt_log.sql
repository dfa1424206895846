-- adopt_log: let this server go on with a log that was made on another one.
-- Returns what log_origin said before.
-- Locks   the skep.identity row; then as adopt_restored_log, if it was restored.
-- Why     Until a person has said so, positions and the lake of the other server are refused here:
--         two servers that go on with one log would both write to its lake. What moved keeps its
--         name, so that positions and the lake stay valid, and all of it counts as known to have
--         committed on its timelines.
create function skep.adopt_log() returns text
language plpgsql as $$
declare
  v_origin text;
begin
  perform 1 from skep.identity i for update;
  v_origin := skep.log_origin();
  if v_origin = 'moved' then
    update skep.identity i set server = skep.server_identity(), xid = pg_current_xact_id();
    update skep.timeline t set xid = pg_current_xact_id();
  elsif v_origin = 'restored' then
    perform skep.adopt_restored_log();
  end if;
  return v_origin;
end $$;

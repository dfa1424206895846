-- forget_reader: forget a Spark reader and release its holds.
-- Takes   p_name: its consumer group.
-- Returns whether it existed.
-- Locks   the skep.reader row and its skep.hold rows.
-- Why     A reader resumes from here whatever its checkpoint; a person runs this when it is gone
--         for good or its position became meaningless.
create function skep.forget_reader(p_name text) returns boolean
language plpgsql as $$
begin
  delete from skep.reader r where r.name = p_name;
  if not found then
    return false;
  end if;
  delete from skep.hold h where h.name = p_name;
  return true;
end $$;

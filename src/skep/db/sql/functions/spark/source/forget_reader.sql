/*
forget_reader: let a reader on Spark begin anew, and retention delete what was kept for it.

Takes   p_name: its consumer group.
Returns whether there was such a reader.
Locks   the skep.reader row and its skep.hold rows.
Why     Run by a person. A reader goes on where it was, whatever its checkpoint; when it is gone for
        good, or its position means nothing any more, somebody has to say so.
*/
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

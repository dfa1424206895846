-- list_code_objects: the functions and views that came from files.
select kind, name, checksum
from skep.code_object;

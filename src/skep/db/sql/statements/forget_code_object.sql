-- forget_code_object: $1 kind, $2 name.
delete from skep.code_object
where kind = $1
and name = $2;

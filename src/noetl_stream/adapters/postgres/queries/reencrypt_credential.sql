update noetl.credential
set key_id = $3, sealed = $4
where name = $1 and version = $2
returning 1

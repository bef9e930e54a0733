update noetl.credential
set key_id = :key_id, sealed = :sealed
where name = :name and version = :version
returning 1

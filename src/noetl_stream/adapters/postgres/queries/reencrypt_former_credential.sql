update noetl.former_credential
set key_id = :key_id, sealed = :sealed
where number = :number
returning 1

select number, name, version, key_id, sealed
from noetl.former_credential
where number > :after
order by number
limit :limit

select path, version, revision, digest, name, description, labels, tags, registered_ms, registered_by
from noetl.catalog
where path = $1
order by revision desc

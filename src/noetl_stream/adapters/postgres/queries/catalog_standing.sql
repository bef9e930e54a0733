-- What registering has to look at: the latest entry, and the one with the same version.
select path, version, revision, digest, name, description, labels, tags, registered_ms, registered_by
from noetl.catalog
where path = $1
  and (version = $2 or revision = (select max(revision) from noetl.catalog where path = $1))
order by revision desc

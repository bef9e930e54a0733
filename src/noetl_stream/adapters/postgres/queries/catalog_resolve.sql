-- The latest entry ($2 null), or those that $2 may name, by version or as revision $3.
select path, version, revision, digest, name, description, labels, tags, registered_ms, registered_by
from noetl.catalog
where path = $1
  and ($2::text is null or version = $2 or revision = $3::integer)
order by revision desc
limit 2

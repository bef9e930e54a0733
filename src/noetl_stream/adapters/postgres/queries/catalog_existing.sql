-- What registering is checked against: the latest entry, and the one with the same version.
select :entry.columns
from noetl.catalog
where path = :path
  and (version = :version or revision = (select max(revision) from noetl.catalog where path = :path))
order by revision desc

-- The latest entry, or those that a version may name: as version or as revision.
select :entry.columns
from noetl.catalog
where path = :path
  and (:version::text is null or version = :version or revision = :revision::integer)
order by revision desc
limit 2

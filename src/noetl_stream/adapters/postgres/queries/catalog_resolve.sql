-- The latest entry, or those that a version may name: by version, or as a revision.
select :entry.columns
from noetl.catalog
where path = :path
  and (:version::text is null or version = :version or revision = :revision::integer)
order by revision desc
limit 2

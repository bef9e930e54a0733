-- A revision of the grants, or (null) the latest, unless it is the one that is known.
select :grants.columns
from noetl.grant_revision
where revision = coalesce(:revision::int, (select max(revision) from noetl.grant_revision))
    and (revision, registered_ms) is distinct from (:known_revision::int, :known_ms::bigint)

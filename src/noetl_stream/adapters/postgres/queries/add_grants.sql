-- Adds a revision of the grants. Returns no row unless it follows the latest.
insert into noetl.grant_revision (:grants.columns)
select :grants.revision::int, :grants.source::text, :grants.registered_ms::bigint, :grants.registered_by::text
where :grants.revision = 1 + coalesce((select max(revision) from noetl.grant_revision), 0)
on conflict do nothing
returning revision

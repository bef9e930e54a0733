with gone as (
    delete from noetl.catalog
    where path = :path and (:revision::integer is null or revision = :revision)
    returning revision
),
noted as (
    insert into noetl.catalog_deleted as d (path, revision)
    select :path, max(revision) from gone having count(*) > 0
    on conflict (path) do update set revision = greatest(d.revision, excluded.revision)
)
select count(*) from gone

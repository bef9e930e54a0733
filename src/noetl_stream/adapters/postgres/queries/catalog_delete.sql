with gone as (
    delete from noetl.catalog
    where path = $1 and ($2::integer is null or revision = $2)
    returning revision
),
noted as (
    insert into noetl.catalog_deleted as d (path, revision)
    select $1, max(revision) from gone having count(*) > 0
    on conflict (path) do update set revision = greatest(d.revision, excluded.revision)
)
select count(*) from gone

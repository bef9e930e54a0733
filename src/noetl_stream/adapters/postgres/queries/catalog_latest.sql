-- The latest entry of each path, of those that have all wanted labels (names $2, values $3).
with latest as (
    select distinct on (path) *
    from noetl.catalog
    where starts_with(path, $1) and path > $4
    order by path, revision desc
)
select path, version, revision, digest, name, description, labels, tags, registered_ms, registered_by
from latest
where not exists (
    select from unnest($2::text[], $3::text[]) as wanted (name, value)
    where latest.labels ->> wanted.name is distinct from wanted.value
)
order by path
limit $5

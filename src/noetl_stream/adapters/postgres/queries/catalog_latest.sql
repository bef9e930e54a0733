-- The latest entry of each path, if it has all wanted labels.
with latest as (
    select distinct on (path) *
    from noetl.catalog
    where starts_with(path, :prefix) and path > :after
    order by path, revision desc
)
select :entry.columns
from latest
where not exists (
    select from unnest(:names::text[], :values::text[]) as wanted (name, value)
    where latest.labels ->> wanted.name is distinct from wanted.value
)
order by path
limit :limit

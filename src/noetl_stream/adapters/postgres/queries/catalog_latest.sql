-- The latest entry of each path in the scope, if it is of a wanted kind and has all wanted labels and words.
with latest as (
    select distinct on (path) *
    from noetl.catalog
    where starts_with(path, :prefix) and path > :after
      and (:scope::text[] = '{}' or exists (
          select from unnest(:scope::text[]) as above where path = above or starts_with(path, above || '/')
      ))
    order by path, revision desc
)
select :entry.columns
from latest
where (:kinds::text[] = '{}' or kind = any(:kinds))
and not exists (
    select from unnest(:names::text[], :values::text[]) as wanted (name, value)
    where latest.labels ->> wanted.name is distinct from wanted.value
)
and not exists (
    select from unnest(:words::text[]) as word
    where position(word in lower(concat_ws(
        ' ', path, name, left(description, :searched::integer),
        left((select string_agg(key || '=' || value, ' ') from json_each_text(labels)), :searched::integer),
        left((select string_agg(tag, ' ') from json_array_elements_text(tags) as tag), :searched::integer)
    ) collate "C")) = 0
)
order by path
limit :limit

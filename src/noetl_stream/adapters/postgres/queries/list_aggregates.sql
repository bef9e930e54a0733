select :aggregates.columns
from noetl.aggregate
where kind = :kind and starts_with(key, :prefix) and (:after::text is null or key > :after)
  and (:scope::text[] = '{}' or exists (
      select from unnest(:scope::text[]) as above where key = above or starts_with(key, above || '/')
  ))
order by key
limit :limit

select :aggregates.columns
from noetl.aggregate
where kind = :kind and starts_with(key, :prefix) and (:after::text is null or key > :after)
order by key
limit :limit

select :history.columns
from noetl.aggregate_history
where aggregate_id = :id
  and number < coalesce(:before::bigint, 9223372036854775807)
  and (cardinality(:statuses::text[]) = 0 or status = any(:statuses))
order by number desc
limit :limit

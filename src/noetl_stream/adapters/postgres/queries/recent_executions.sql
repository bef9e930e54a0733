-- Status by status: within each, the index has the executions of a path newest first.
select x.*
from unnest(:statuses::text[]) as wanted (status)
cross join lateral (
    select :recent.columns
    from noetl.execution x
    where (x.path, x.status, x.execution_id) >= (:path, wanted.status, :lowest)
      and (x.path, x.status) <= (:path, wanted.status)
      and x.started_ms >= :from_ms
    order by x.path desc, x.status desc, x.execution_id desc
    limit :limit
) as x
order by execution_id desc
limit :limit

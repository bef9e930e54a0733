-- The execution of each path that started last. Of each status, the index has those of a path newest first.
select distinct on (wanted.path) wanted.path, x.*
from unnest(:paths::text[]) as wanted (path)
cross join unnest(:statuses::text[]) as those (status)
cross join lateral (
    select :recent.columns
    from noetl.execution x
    where (x.path, x.status) >= (wanted.path, those.status)
      and (x.path, x.status) <= (wanted.path, those.status)
    order by x.path desc, x.status desc, x.execution_id desc
    limit 1
) as x
order by wanted.path, x.execution_id desc

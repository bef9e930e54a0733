-- Counts by status and key of the newest executions with a term, up to a limit.
select x.status, {key} as key, count(*)
from (
    select x.*
    from noetl.execution_term t
    cross join lateral (
        select {columns}
        from noetl.execution x
        where x.execution_id = t.execution_id and {conditions}
        offset 0
    ) as x
    where (t.term, t.execution_id) < (:term, :above)
      and (t.term, t.execution_id) >= (:term, :lowest)
      and {terms}
    order by t.term desc, t.execution_id desc
    limit :limit
) as x
group by x.status, key

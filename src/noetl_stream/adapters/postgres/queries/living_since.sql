-- Executions that have not ended, with the bytes that their journals take, roughly.
select x.execution_id, x.partition, coalesce(j.bytes, 0)::bigint
from noetl.execution x
cross join lateral (
    select sum(100 + pg_column_size(e.data) + coalesce(pg_column_size(e.decisions), 0)) as bytes
    from noetl.event e
    where e.execution_id = x.execution_id
) j
where x.finished_ms is null and x.started_ms <= :started_ms
order by x.execution_id

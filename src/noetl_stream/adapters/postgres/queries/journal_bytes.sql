-- The bytes that the journals of these executions take together, roughly.
select coalesce(sum(100 + pg_column_size(data) + coalesce(pg_column_size(decisions), 0)), 0)::bigint
from noetl.event
where execution_id = any(:execution_ids::text[])

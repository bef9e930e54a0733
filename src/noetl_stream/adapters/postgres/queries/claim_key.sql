with claimed as (
    insert into noetl.idempotency (tenant, key, caller, content_hash, execution_id, request_id)
    values ($1, $2, $3, $4, $5, $6)
    on conflict do nothing
    returning content_hash, execution_id, request_id, status, headers, body
)
select content_hash, execution_id, request_id, status, headers, body
from claimed
union all
select content_hash, execution_id, request_id, status, headers, body
from noetl.idempotency
where tenant = $1 and key = $2 and caller = $3

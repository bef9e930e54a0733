-- There is one tenant so far: ''.
with claimed as (
    insert into noetl.idempotency (tenant, key, caller, content_hash, execution_id, request_id, seed)
    values ('', :key, :caller, :content_hash, :execution_id, :request_id, :seed)
    on conflict do nothing
    returning content_hash, execution_id, request_id, seed, status, headers, body
)
select content_hash, execution_id, request_id, seed, status, headers, body
from claimed
union all
select content_hash, execution_id, request_id, seed, status, headers, body
from noetl.idempotency
where tenant = '' and key = :key and caller = :caller

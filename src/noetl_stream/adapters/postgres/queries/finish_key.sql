-- The first success is kept, or the first refusal if there is none, and returned to later calls.
update noetl.idempotency as kept
set status = case when kept.status is null or new.is_better then :status else kept.status end,
    headers = case when kept.status is null or new.is_better then :headers::json else kept.headers end,
    body = case when kept.status is null or new.is_better then :body else kept.body end,
    seed = null
from (
    select tenant, key, caller, status >= 400 and :status < 400 as is_better
    from noetl.idempotency
    where tenant = '' and key = :key and caller = :caller
    for update
) as new
where kept.tenant = new.tenant and kept.key = new.key and kept.caller = new.caller
returning kept.status, kept.headers, kept.body

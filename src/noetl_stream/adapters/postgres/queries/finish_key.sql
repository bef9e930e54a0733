-- The first answer is kept and returned to later calls.
update noetl.idempotency as kept
set status = coalesce(kept.status, :status),
    headers = case when kept.status is null then :headers::json else kept.headers end,
    body = case when kept.status is null then :body else kept.body end
where tenant = '' and key = :key and caller = :caller
returning kept.status, kept.headers, kept.body

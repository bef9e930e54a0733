-- The first answer stays; whoever comes second is given it.
update noetl.idempotency as kept
set status = coalesce(kept.status, $4),
    headers = case when kept.status is null then $5::json else kept.headers end,
    body = case when kept.status is null then $6 else kept.body end
where tenant = $1 and key = $2 and caller = $3
returning kept.status, kept.headers, kept.body

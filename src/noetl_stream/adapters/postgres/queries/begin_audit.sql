insert into noetl.audit
    (at_ms, principal, role, method, operation, target, correlation_id, remote, idempotency_key)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
returning number

with begun as (
    insert into noetl.audit
        (at_ms, principal, role, method, operation, target, correlation_id, remote, idempotency_key)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    returning number
)
insert into noetl.audit_answer (number, status, reason, made) select number, $10, $11, $12 from begun

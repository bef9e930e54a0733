-- Newest first; of one principal, or with null of all: only one of the two branches is ever run.
with chosen as (
    (select * from noetl.audit
     where $3::text is null and number < coalesce($2, 9223372036854775807)
     order by number desc limit $1)
    union all
    (select * from noetl.audit
     where principal = $3 and number < coalesce($2, 9223372036854775807)
     order by number desc limit $1)
)
select number, at_ms, principal, role, method, operation, target, correlation_id, remote, idempotency_key,
       status, reason, made
from chosen left join noetl.audit_answer using (number)
order by number desc

-- Newest first, of one principal or (null) of all. Only one of the two branches runs.
with chosen as (
    (select * from noetl.audit
     where :principal::text is null and number < coalesce(:before, 9223372036854775807)
     order by number desc limit :limit)
    union all
    (select * from noetl.audit
     where principal = :principal and number < coalesce(:before, 9223372036854775807)
     order by number desc limit :limit)
)
select number, :attempt.columns, :answer.columns
from chosen left join noetl.audit_answer using (number, at_ms)
order by number desc

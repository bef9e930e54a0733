insert into noetl.audit_answer (number, at_ms, :answer.columns)
select number, at_ms, :answer.values
from noetl.audit
where number = :number and not exists (select from noetl.audit_answer where number = :number)

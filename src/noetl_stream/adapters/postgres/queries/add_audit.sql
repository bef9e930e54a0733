with begun as (
    insert into noetl.audit (:attempt.columns)
    values (:attempt.values)
    returning number, at_ms
)
insert into noetl.audit_answer (number, at_ms, :answer.columns) select number, at_ms, :answer.values from begun

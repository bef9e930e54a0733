with begun as (
    insert into noetl.audit (:attempt.columns)
    values (:attempt.values)
    returning number
)
insert into noetl.audit_answer (number, :answer.columns) select number, :answer.values from begun

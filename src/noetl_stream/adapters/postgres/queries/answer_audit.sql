insert into noetl.audit_answer (number, :answer.columns)
values (:number, :answer.values)
on conflict (number) do nothing

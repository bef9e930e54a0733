insert into noetl.audit (:attempt.columns)
values (:attempt.values)
returning number

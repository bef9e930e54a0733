insert into noetl.dead_letter
    (:row.columns)
values
    (:row.values)
on conflict do nothing

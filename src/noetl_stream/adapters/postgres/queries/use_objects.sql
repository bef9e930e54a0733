insert into noetl.object_use (:object_uses.columns)
select * from :object_uses.rows
on conflict do nothing

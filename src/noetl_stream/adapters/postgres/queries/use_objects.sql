insert into noetl.object_use (:object_uses.columns)
select * from unnest(:object_uses.arrays)
on conflict do nothing

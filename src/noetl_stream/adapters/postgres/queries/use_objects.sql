insert into noetl.object_use (execution_id, key, store, owner)
select * from unnest($1::text[], $2::text[], $3::text[], $4::text[])
on conflict do nothing

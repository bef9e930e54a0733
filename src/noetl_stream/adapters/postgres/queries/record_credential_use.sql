insert into noetl.credential_use (execution_id, name) values (:execution_id, :name)
on conflict do nothing

select u.execution_id, c.name, c.kind, c.description, c.tags, c.version, c.key_id,
       (extract(epoch from c.created_at) * 1000)::bigint,
       (extract(epoch from c.updated_at) * 1000)::bigint,
       c.sealed
from noetl.credential_use u join noetl.credential c on c.name = u.name
where u.execution_id = any(:execution_ids::text[])
order by u.execution_id, c.name

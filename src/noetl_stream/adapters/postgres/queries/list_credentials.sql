select name, kind, description, tags, version, key_id,
       (extract(epoch from created_at) * 1000)::bigint,
       (extract(epoch from updated_at) * 1000)::bigint
from noetl.credential
order by name

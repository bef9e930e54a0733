select name, kind, description, tags, version, key_id,
       (extract(epoch from created_at) * 1000)::bigint,
       (extract(epoch from updated_at) * 1000)::bigint,
       sealed
from noetl.credential
where :name::text is null or name = :name
order by name

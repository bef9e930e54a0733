-- One token, or with null all of them.
select id, name, role, paths, secret_hash, created_ms, created_by, expires_ms, last_used_ms, revoked_ms, revoked_by
from noetl.api_token
where $1::text is null or id = $1
order by created_ms, id

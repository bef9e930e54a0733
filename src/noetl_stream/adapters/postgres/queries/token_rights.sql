-- A name is that of one token that is not revoked.
select name, role, paths
from noetl.api_token
where name = any(:names::text[]) and revoked_ms is null and (expires_ms is null or expires_ms > :now_ms)

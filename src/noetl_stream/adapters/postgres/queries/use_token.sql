update noetl.api_token
set last_used_ms = $2
where id = $1 and (last_used_ms is null or last_used_ms < $3)

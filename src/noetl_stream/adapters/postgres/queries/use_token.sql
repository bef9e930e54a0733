update noetl.api_token
set last_used_ms = :at_ms
where id = :token_id and (last_used_ms is null or last_used_ms < :unless_since_ms)

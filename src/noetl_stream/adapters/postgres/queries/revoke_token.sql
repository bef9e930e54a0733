-- Only the first revocation is recorded.
update noetl.api_token
set revoked_by = case when revoked_ms is null then :by else revoked_by end,
    revoked_ms = coalesce(revoked_ms, :at_ms)
where id = :token_id
returning id

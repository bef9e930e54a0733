-- One token, or (null) all.
select :token.columns
from noetl.api_token
where :token_id::text is null or id = :token_id
order by created_ms, id

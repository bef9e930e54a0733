-- One token, or (null) all.
select :token.columns
from noetl.api_token
where :id::text is null or id = :id
order by created_ms, id

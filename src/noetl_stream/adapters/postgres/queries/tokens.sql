-- One token, or with null all of them.
select :token.columns
from noetl.api_token
where :id::text is null or id = :id
order by created_ms, id

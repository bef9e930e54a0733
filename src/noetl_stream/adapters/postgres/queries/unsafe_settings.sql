-- Settings under which Postgres may lose what it has called committed.
select name, setting
from pg_settings
where (name in ('fsync', 'full_page_writes') and setting = 'off')
   or (name = 'synchronous_commit' and setting = 'off')
order by name

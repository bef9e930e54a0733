-- Settings under which Postgres may lose committed transactions.
select name, setting
from pg_settings
where (name in ('fsync', 'full_page_writes') and setting = 'off')
   or (name = 'synchronous_commit' and setting = 'off')
order by name

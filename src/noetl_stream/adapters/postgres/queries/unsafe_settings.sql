-- Settings under which Postgres, or its failover, may lose committed transactions. The embedded Postgres has no standby.
select name, setting
from pg_settings
where (name in ('fsync', 'full_page_writes') and setting = 'off')
   or (name = 'synchronous_commit' and setting in ('off', 'local'))
   or (name = 'synchronous_standby_names' and setting = '' and current_setting('cluster_name') <> :embedded_cluster)
order by name

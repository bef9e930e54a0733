-- What Postgres says of itself. Who may not see the state of standbys sees no more than that they are there.
select current_setting('server_version') as version,
       current_user::text as user,
       (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
       pg_database_size(current_database()) as size_bytes,
       (select sum(numbackends) from pg_stat_database)::bigint as connections,
       current_setting('max_connections')::bigint as max_connections,
       current_setting('synchronous_standby_names') as waits_for,
       (select count(*) from pg_stat_replication) as standbys,
       (select case when bool_or(sync_state is null) then null
                    else count(*) filter (where sync_state in ('sync', 'quorum')) end
        from pg_stat_replication) as synchronous

-- Reports of runs that had lost their command. Source: PROTOCOL §3 "Binding".

create table noetl.stale_report (
    number        bigint generated always as identity primary key,
    execution_id  text collate "C" not null,
    report_id     text collate "C" not null,
    source_seq    bigint not null,
    at_ms         bigint not null,
    reason        text not null
);
comment on table noetl.stale_report is 'what a worker reported that no longer had the command: it changed nothing';
comment on column noetl.stale_report.report_id is 'its Msg-Id: the command, the run, and the number of the report in it';
comment on column noetl.stale_report.source_seq is 'sequence in EVENTS, where its facts are';
create index stale_report_execution on noetl.stale_report (execution_id);

create function noetl.delete_stale_reports() returns trigger
language plpgsql security definer set search_path = noetl, pg_temp as $$
begin
    delete from stale_report where execution_id = old.execution_id;
    return null;
end $$;
create trigger delete_stale_reports after delete on noetl.execution
    for each row execute function noetl.delete_stale_reports();

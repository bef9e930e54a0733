-- Executions that a schedule starts are found by when they were due. Source: LANGUAGE §9 "Finding".

alter table noetl.execution add column due text collate "C" not null default '';
comment on column noetl.execution.due is 'when it was due, by the clocks of the zone of its schedule; empty without a schedule';
comment on table noetl.execution_term is
    'label:name=value, key:…, input:path=value, step:name that failed, worker:name, took:seconds at least, due:year, month and day, word:… of the error';

-- What else executions are found by: inputs, the step that failed, workers, and how long they took. Source: LANGUAGE §9 "Finding".
-- What ended before has no terms of these: it is found by them no more than if it had been asked for without.

alter table noetl.execution add column inputs json not null default '{}';
alter table noetl.execution add column failed_step text not null default '';
alter table noetl.execution add column workers json not null default '[]';
comment on column noetl.execution.inputs is 'scalars of what it was started with, by path: what it is found by';
comment on column noetl.execution.failed_step is 'the step that failed it; empty if none did';
comment on column noetl.execution.workers is 'the first that ran its steps, by name';
comment on table noetl.execution_term is
    'label:name=value, key:…, input:path=value, step:name that failed, worker:name, took:seconds at least, word:… of the error';

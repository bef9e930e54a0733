-- Which execution this one has run again (LANGUAGE §9 "Rerun").

alter table noetl.execution add column rerun_of text collate "C";
comment on column noetl.execution.rerun_of is 'the execution whose step runs it reuses; null: it began at the beginning';

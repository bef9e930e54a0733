-- What executions have in the object store, which is bounded by namespace. Source: PROTOCOL §7 "Shares of namespaces".

alter table noetl.execution add column stored_bytes bigint not null default 0;
comment on column noetl.execution.stored_bytes is 'bytes of the objects that its workers have stored';

-- Few executions store objects.
create index execution_stored on noetl.execution (path, stored_bytes) where stored_bytes > 0;

-- Bundles that are stored, so that those that nothing names are deleted. Source: PROTOCOL §5 "Retention".

create table noetl.bundle (
    name       text collate "C" primary key,
    wanted_ms  bigint not null
);
comment on table noetl.bundle is 'the bundles in the object store; 0 as wanted_ms: being deleted';
create index playbook_bundle on noetl.playbook (digest) where source ~ '@[0-9a-f]{64}';

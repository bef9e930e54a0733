-- The catalog holds schemas beside playbooks. Source: LANGUAGE §15.

alter table noetl.catalog add column kind text not null default 'Playbook';
comment on table noetl.catalog is 'registered documents, only ever added to; the highest revision of a path is its latest';
comment on column noetl.catalog.kind is 'Playbook or Schema; one path has one kind';

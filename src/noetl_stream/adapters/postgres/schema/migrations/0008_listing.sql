-- What executions are found by, at a million of them. Source: noetl_stream/ports/listing.py.
-- Lists are newest first. A condition on an index that is not in that order has to read all it finds before it can sort,
-- be it half of the table; so each label and each word of an error is a row of its own, in the order of executions.

alter table noetl.execution add column ctx_version integer not null default 1;
alter table noetl.execution add column labels json not null default '{}';
comment on column noetl.execution.ctx_version is 'the position at which ctx last changed';
comment on column noetl.execution.labels is 'metadata.labels of the playbook';

create table noetl.execution_term (
    term          text collate "C" not null,
    execution_id  text collate "C" not null,
    primary key (term, execution_id)
);
comment on table noetl.execution_term is 'label:name=value of its playbook, word:… of its error; only ever added to';

-- By path, or by path and status: both in order, status by status.
drop index noetl.execution_by_path;
create index execution_by_path on noetl.execution (path, status, execution_id);

-- A number is not given twice, whatever was deleted.
create table noetl.catalog_deleted (
    path      text collate "C" primary key,
    revision  integer not null
);
comment on table noetl.catalog_deleted is 'the highest revision that was taken out of the catalog, by path';
comment on table noetl.catalog is 'registered playbooks, never changed; the highest revision of a path is its latest';

-- What there was before.
update noetl.execution x
set labels = c.labels
from (select distinct on (digest) digest, labels from noetl.catalog where labels::text <> '{}' order by digest, revision) c
where x.digest = c.digest;

insert into noetl.execution_term (term, execution_id)
select 'label:' || label.key || '=' || label.value, execution_id
from noetl.execution, json_each_text(labels) as label
where label.value is not null
on conflict do nothing;

insert into noetl.execution_term (term, execution_id)
select 'word:' || left(word[1], 64), execution_id
from noetl.execution,
     regexp_matches(lower(concat_ws(' ', error ->> 'kind', error ->> 'code', error ->> 'task', error ->> 'message')),
                    '\w+', 'g') as word
where error is not null
on conflict do nothing;

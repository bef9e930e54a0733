-- Aggregates: state of its own beside executions. Source: PROTOCOL §1 "Aggregates".

create table noetl.aggregate (
    id            text collate "C" primary key,
    partition     integer not null,
    kind          text not null,
    key           text collate "C" not null,
    position      bigint not null,
    state         json not null,
    updated_ms    bigint not null
);
comment on table noetl.aggregate is 'schedules, triggers, limits: folded in the partition of their id';
comment on column noetl.aggregate.key is 'its path, or the value of its key, from which the id derives';
comment on column noetl.aggregate.position is 'how often it has changed';
create index aggregate_key on noetl.aggregate (kind, key);

create table noetl.aggregate_history (
    aggregate_id  text collate "C" not null,
    number        bigint not null,
    at_ms         bigint not null,
    status        text not null,
    execution_id  text collate "C",
    body          json not null,
    primary key (aggregate_id, number)
);
comment on table noetl.aggregate_history is 'what became of each occurrence or event, the newest of each aggregate';

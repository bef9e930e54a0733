-- What each tick has added to the journals, so that all events can be followed and gone on from (PROTOCOL §4).
-- A row a partition and tick: [[execution_id, first_position, last_position], …].

create table noetl.feed (
    partition  integer not null,
    tick       bigint not null,
    at_ms      bigint not null,
    entries    json not null,
    primary key (partition, tick)
);
create index feed_age on noetl.feed using brin (at_ms);

create table noetl.feed_floor (
    partition  integer primary key,
    tick       bigint not null
);
comment on table noetl.feed_floor is 'the last tick of each partition that was forgotten';

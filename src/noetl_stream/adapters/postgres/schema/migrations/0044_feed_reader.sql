-- The places of readers of the feed. Source: PROTOCOL §2 "Resends".

create table noetl.feed_reader (
    reader     text collate "C" not null,
    partition  int not null,
    tick       bigint not null,
    primary key (reader, partition)
);
comment on table noetl.feed_reader is 'the last tick of each partition that a reader of the feed has processed';

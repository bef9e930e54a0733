-- Messages that could not be folded, and commands that were given up. Source: PROTOCOL §1, §3 "Limit of deliveries".

create table noetl.dead_letter (
    number        bigint generated always as identity primary key,
    id            text collate "C" not null unique,
    at_ms         bigint not null,
    source        text not null check (source in ('events', 'inbox', 'command')),
    partition     integer not null,
    execution_id  text collate "C" not null,
    subject       text not null,
    reason        text not null,
    body          bytea not null,
    size          bigint not null,
    source_seq    bigint,
    state         text not null default 'waiting' check (state in ('waiting', 'requeued', 'discarded')),
    settled_ms    bigint,
    settled_by    text
);
comment on table noetl.dead_letter is 'written by the tick that passes a message over; a row stays when it is settled, and says who did what';
comment on column noetl.dead_letter.body is 'the first MiB of it; empty once it is discarded';
comment on column noetl.dead_letter.size is 'how many bytes the body had';
comment on column noetl.dead_letter.source_seq is 'sequence in EVENTS, or in the inbox';
create index dead_letter_waiting on noetl.dead_letter (number) where state = 'waiting';

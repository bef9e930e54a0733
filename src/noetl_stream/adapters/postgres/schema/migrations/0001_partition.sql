-- Who folds which partition, and how far. Source: PROTOCOL §1 "Partition row", §2 "Lease and fence".

create table noetl.meta (
    only_row    boolean primary key default true check (only_row),
    partitions  integer not null
);
comment on column noetl.meta.partitions is 'P: how many partitions EVENTS is cut into; servers refuse to start with another';
insert into noetl.meta (partitions) values (32);

-- A row is rewritten by every tick. Room on each page keeps those rewrites within it and out of the index.
create table noetl.partition (
    id              integer primary key,
    epoch           bigint not null default 0,
    owner           text,
    backend         integer,
    lease_until     timestamptz not null default '-infinity',
    given_back      boolean not null default true,
    crashes         integer not null default 0,
    tick            bigint not null default 0,
    published_tick  bigint not null default 0,
    last_seq        bigint not null default 0,
    last_ms         bigint not null default 0,
    generation      bigint not null default 0
) with (fillfactor = 20);
comment on column noetl.partition.owner is 'random name of the server process; null: given back, or never taken';
comment on column noetl.partition.backend is 'process id of the connection the owner commits on';
comment on column noetl.partition.crashes is 'takeovers without a give-back since the last commit';
comment on column noetl.partition.published_tick is 'the last tick whose messages JetStream has acknowledged';
comment on column noetl.partition.last_seq is 'cursor: sequence in EVENTS of the last message folded';
comment on column noetl.partition.last_ms is 'when JetStream stored that message, ms since 1970';
insert into noetl.partition (id) select generate_series(0, 31);

-- A statement cannot raise an error by itself; a tick that finds another epoch, tick or owner must.
create function noetl.fail_fence() returns boolean language plpgsql as $$
begin
    raise exception 'a partition has another epoch, tick or owner' using errcode = 'NF001';
end
$$;

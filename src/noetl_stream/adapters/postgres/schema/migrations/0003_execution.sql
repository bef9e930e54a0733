-- The row people read of an execution, as of its last tick.

create table noetl.execution (
    execution_id  text collate "C" primary key,
    partition     integer not null,
    status        text not null,
    path          text not null,
    version       text,
    digest        text not null,
    position      integer not null,
    started_ms    bigint not null,
    updated_ms    bigint not null,
    finished_ms   bigint,
    result        json,
    error         json,
    ctx           json not null,
    discarded     integer not null
) with (fillfactor = 80);
comment on column noetl.execution.position is 'the last position of its journal';
comment on column noetl.execution.discarded is 'tokens that were discarded when it ended';

-- Newest first is the primary key read backwards: execution ids sort by their start.
create index execution_by_status on noetl.execution (status, execution_id);
create index execution_by_path on noetl.execution (path, execution_id);
create index execution_live on noetl.execution (partition) where finished_ms is null;

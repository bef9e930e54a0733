-- An execution's row is updated by each tick that touches it. An update that finds room on its page writes no index.
-- Rows that are there already stay where they are.

alter table noetl.execution set (fillfactor = 50);

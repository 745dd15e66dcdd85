"""The data source `zraft`: files of servers, peers and clients as the tables of `onyxlog.audits.tables`."""

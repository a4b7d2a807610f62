-- The tables of the store. Whoever owns a table says in its crate what the columns mean.

-- crates/windows: the windows of a probe's name, from its creation to its deletion.
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- What is not in the rows of its windows: two lines of JSON, the second the digest of the first.
    state BLOB NOT NULL
);

-- Ids only grow, so that new windows are at the end of the table, and old ones go from its beginning.
CREATE TABLE windows (
    id INTEGER PRIMARY KEY,
    series INTEGER NOT NULL,
    instance TEXT NOT NULL,
    seq INTEGER NOT NULL,
    -- 0 closed, 1 taken, 2 acknowledged and the newest, 3 damaged.
    form INTEGER NOT NULL,
    closed_by INTEGER NOT NULL,
    start TEXT NOT NULL,
    "end" TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    -- The digest of the columns before.
    digest BLOB NOT NULL,
    -- NULL if the body is the file `bodies/ID`.
    body BLOB
);

CREATE TABLE baselines (
    id INTEGER PRIMARY KEY,
    series INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    serial INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    -- NULL if the body is the file `bodies/ID`.
    body BLOB
);

-- crates/agent: the probes that have to run.
CREATE TABLE probes (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL
) WITHOUT ROWID;

-- Probes whose leases have ended, while their windows are kept.
CREATE TABLE expired (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE revisions (
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (name, revision)
) WITHOUT ROWID;

-- Records that could not be read and were replaced.
CREATE TABLE unreadable (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL
) WITHOUT ROWID;

-- Tables that were not there from the beginning. Earlier programs do not look at them, so that the version stays.

-- crates/agent: what has been changed, by whom and why.
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    -- Microseconds since 1970.
    time INTEGER NOT NULL,
    record BLOB NOT NULL
);

CREATE INDEX IF NOT EXISTS history_of_a_name ON history (name, id);
CREATE INDEX IF NOT EXISTS history_by_time ON history (time);

-- crates/agent: the rules, each with what it remembers of the windows before.
CREATE TABLE IF NOT EXISTS rules (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL
) WITHOUT ROWID;

-- Configurations that rules deploy with values of windows in them.
CREATE TABLE IF NOT EXISTS templates (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL
) WITHOUT ROWID;

-- The documents that rules have had.
CREATE TABLE IF NOT EXISTS rule_revisions (
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (name, revision)
) WITHOUT ROWID;

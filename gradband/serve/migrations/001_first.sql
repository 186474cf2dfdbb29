-- Written for SQLite and PostgreSQL. {clustered} makes SQLite store the rows in the order of the key.

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO counters (name, value) VALUES ('tests', 0);

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    revoked DOUBLE PRECISION
);

CREATE TABLE policies (
    fingerprint TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    arms BIGINT NOT NULL,
    horizon BIGINT NOT NULL,
    flexible BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    file BYTEA NOT NULL
);

CREATE TABLE tests (
    id BIGINT PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    spec TEXT NOT NULL,
    status TEXT NOT NULL,
    policy TEXT NOT NULL REFERENCES policies (fingerprint),
    arms TEXT NOT NULL,
    version BIGINT NOT NULL,
    decisions BIGINT NOT NULL,
    rewards BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    due DOUBLE PRECISION,
    created DOUBLE PRECISION NOT NULL,
    changed DOUBLE PRECISION NOT NULL
);

CREATE INDEX tests_due ON tests (due);

CREATE TABLE events (
    test BIGINT NOT NULL REFERENCES tests (id),
    seq BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (test, seq)
){clustered};

CREATE TABLE changes (
    test BIGINT NOT NULL REFERENCES tests (id),
    seq BIGINT NOT NULL,
    t DOUBLE PRECISION NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (test, seq)
){clustered};

CREATE TABLE snapshots (
    test BIGINT PRIMARY KEY REFERENCES tests (id),
    seq BIGINT NOT NULL,
    state TEXT NOT NULL
);

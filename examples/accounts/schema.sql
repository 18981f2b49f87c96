CREATE TABLE IF NOT EXISTS accounts (
    id text PRIMARY KEY,
    version integer NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS writes (
    number bigserial PRIMARY KEY,
    account text NOT NULL,
    token bigint NOT NULL,
    node text NOT NULL
);

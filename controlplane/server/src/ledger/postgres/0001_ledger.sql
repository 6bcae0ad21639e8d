-- The tables of a Felix ledger. Whoever reads them reads private keys.

CREATE TABLE felix_ledger (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    cluster_id text NOT NULL
);

CREATE TABLE felix_ledger_record (
    revision bigint PRIMARY KEY CHECK (revision > 0),
    record bytea NOT NULL,
    -- SHA-256 of the chain before and the record.
    chain bytea NOT NULL CHECK (octet_length(chain) = 32),
    -- Random, the same for all records of one append: tells whose they are when an answer was lost.
    append_id bytea NOT NULL CHECK (octet_length(append_id) = 16),
    written_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE felix_ledger_snapshot (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint NOT NULL,
    state bytea NOT NULL
);

-- The ledger is also the record of who did what.
CREATE FUNCTION felix_ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'records of a Felix ledger are never changed or removed';
END
$$;

CREATE TRIGGER felix_ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON felix_ledger_record
    FOR EACH STATEMENT EXECUTE FUNCTION felix_ledger_append_only();

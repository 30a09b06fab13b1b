import { ACCOUNT_FUNCTIONS } from './account-functions.ts';
import { ENTRY_FUNCTIONS } from './entry-functions.ts';
import { VERSION_FUNCTIONS } from './version-functions.ts';

/**
 * The migrations of the database, in order: each runs once, in one transaction. A migration is never changed after a release.
 *
 * Each rule is one function, so that it costs one round trip and holds its locks for no network delay. Functions refuse with
 * SQLSTATE `CF` and the HTTP status. Texts sort by their bytes, as in LMDB.
 *
 * Order of locks, against deadlocks (docs/adr/0046): the row of the account that changes, then blobs by name. A change locks one
 * account only, so changes of one account run in sequence. A statement for several accounts takes only locks that are free, and deletes
 * nothing (docs/adr/0059). PostgreSQL ends one side of a deadlock, and that statement is repeated.
 */
export const MIGRATIONS: readonly string[] = [
  `
  CREATE SEQUENCE uids START 1001;
  -- System folders use the small numbers.
  CREATE SEQUENCE numbers START 5000;

  CREATE TABLE users (
    uid text COLLATE "C" PRIMARY KEY DEFAULT nextval('uids')::text,
    email text COLLATE "C" NOT NULL UNIQUE,
    nickname text NOT NULL,
    salt bytea NOT NULL,
    hash bytea NOT NULL,
    cost integer NOT NULL,
    quota_bytes bigint NOT NULL,
    -- Of the newest versions.
    usage_bytes bigint NOT NULL DEFAULT 0,
    -- Everything that the account stores: files and folders, incomplete versions, and the bytes of all with their rows.
    entries bigint NOT NULL DEFAULT 0,
    unfinished bigint NOT NULL DEFAULT 0,
    held_bytes bigint NOT NULL DEFAULT 0,
    created_ms bigint NOT NULL,
    sign_outs integer NOT NULL DEFAULT 0,
    networks text[] NOT NULL DEFAULT '{}'
  );
  CREATE TABLE applications (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    enabled boolean NOT NULL DEFAULT true
  );
  CREATE TABLE key_pairs (
    access_key_id text COLLATE "C" PRIMARY KEY,
    uid text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    secret_hash bytea NOT NULL,
    created_ms bigint NOT NULL
  );
  CREATE INDEX key_pairs_of_user ON key_pairs (uid);
  CREATE TABLE refresh_tokens (
    hash text COLLATE "C" PRIMARY KEY,
    uid text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    application text NOT NULL,
    created_ms bigint NOT NULL,
    used_ms bigint NOT NULL
  );
  CREATE INDEX refresh_tokens_of_user ON refresh_tokens (uid, used_ms);
  CREATE TABLE access_tokens (
    hash text COLLATE "C" PRIMARY KEY,
    uid text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    refresh_token text COLLATE "C" REFERENCES refresh_tokens ON DELETE CASCADE,
    expires_ms bigint NOT NULL
  );
  CREATE INDEX access_tokens_of_user ON access_tokens (uid, expires_ms);
  CREATE INDEX access_tokens_of_refresh_token ON access_tokens (refresh_token);
  CREATE INDEX access_tokens_by_end ON access_tokens (expires_ms);

  CREATE TABLE resources (
    uid text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    local text COLLATE "C" NOT NULL,
    is_file boolean NOT NULL,
    seq bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- Equal for names that differ only by case.
    name_hash text COLLATE "C" NOT NULL,
    -- Need not exist: deleting a folder leaves its contents behind.
    parent text COLLATE "C" NOT NULL,
    created_ms bigint NOT NULL,
    role text,
    workspace text,
    media_type text,
    public_link text COLLATE "C",
    newest_seq bigint,
    newest_size bigint,
    newest_modified_ms bigint,
    newest_blob text,
    PRIMARY KEY (uid, local)
  );
  -- The account is not their first column: a new database has no statistics, and the planner would take one of these for a look
  -- at (uid, local), which reads all entries of the account.
  CREATE INDEX resources_of_parent ON resources (parent, uid, is_file, seq);
  CREATE INDEX resources_by_name ON resources (parent, uid, name_hash);
  CREATE UNIQUE INDEX resources_by_link ON resources (uid, public_link) WHERE public_link IS NOT NULL;

  CREATE TABLE shares (
    receiver text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    owner text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    folder text COLLATE "C" NOT NULL,
    write_allowed boolean NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (receiver, owner, folder),
    FOREIGN KEY (owner, folder) REFERENCES resources (uid, local) ON DELETE CASCADE
  );
  CREATE INDEX shares_of_folder ON shares (owner, folder);
  CREATE TABLE workspaces (
    uid text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    local text COLLATE "C" NOT NULL,
    name text NOT NULL,
    icon_id text NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (uid, local)
  );
  CREATE TABLE versions (
    uid text COLLATE "C" NOT NULL,
    file text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    version text COLLATE "C" NOT NULL,
    created_ms bigint NOT NULL,
    last_modified_ms bigint NOT NULL,
    media_type text NOT NULL,
    complete boolean NOT NULL,
    -- Of an incomplete version: the bytes of its recorded parts.
    size_bytes bigint NOT NULL,
    blob text COLLATE "C" NOT NULL,
    sha256 text,
    -- An upload in one step, which becomes a version when it is complete.
    hidden boolean NOT NULL DEFAULT false,
    -- Raised by each sender: only the last one records parts, and completes the version.
    epoch bigint NOT NULL DEFAULT 0,
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (uid, file, seq),
    FOREIGN KEY (uid, file) REFERENCES resources (uid, local) ON DELETE CASCADE
  );
  CREATE INDEX versions_incomplete ON versions (last_modified_ms) WHERE NOT complete;
  CREATE INDEX versions_not_hashed ON versions (last_modified_ms) WHERE complete AND sha256 IS NULL;

  -- The bytes of versions; few bytes lie here, others in parts. Copies of a file share a blob.
  CREATE TABLE blobs (
    name text COLLATE "C" PRIMARY KEY,
    refs bigint NOT NULL,
    bytes bytea
  );
  -- Every object that may exist in the store: recorded before its first byte, until it is deleted.
  CREATE TABLE objects (
    key text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
  );
  CREATE INDEX objects_without_reference ON objects (since) WHERE state <> 'live';
  CREATE TABLE parts (
    blob text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    size bigint NOT NULL,
    key text COLLATE "C" NOT NULL REFERENCES objects,
    etag text NOT NULL,
    PRIMARY KEY (blob, start)
  );
  -- Wrong sign-ins. Need not survive a crash.
  CREATE UNLOGGED TABLE guesses (
    key text COLLATE "C" PRIMARY KEY,
    count integer NOT NULL,
    not_before_ms bigint NOT NULL
  );
  -- One row: what all servers must agree on.
  CREATE TABLE installation (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id text NOT NULL DEFAULT gen_random_uuid()::text,
    origin text NOT NULL
  );

  ${ACCOUNT_FUNCTIONS}
  ${ENTRY_FUNCTIONS}
  ${VERSION_FUNCTIONS}`,
];

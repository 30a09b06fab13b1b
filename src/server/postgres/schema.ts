/**
 * The migrations of the database, in order: each runs once, in one transaction. A migration is never changed after a release.
 *
 * Each rule is one function, so that it costs one round trip and holds its locks for no network delay. Functions refuse with
 * SQLSTATE `CF` and the HTTP status. Texts sort by their bytes, as in LMDB.
 *
 * Order of locks, against deadlocks: the account's advisory lock (changes of folders), parent folders, the entry, the user.
 * Only the removal of a user locks in another order. PostgreSQL ends one side of a deadlock, and that statement is repeated.
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
    usage_bytes bigint NOT NULL DEFAULT 0,
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
  CREATE INDEX resources_of_parent ON resources (uid, parent, is_file, seq);
  CREATE INDEX resources_by_name ON resources (uid, parent, name_hash);
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
    size_bytes bigint NOT NULL,
    blob text NOT NULL,
    sha256 text,
    PRIMARY KEY (uid, file, seq),
    FOREIGN KEY (uid, file) REFERENCES resources (uid, local) ON DELETE CASCADE
  );

  CREATE FUNCTION refuse(status integer, message text) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    RAISE EXCEPTION USING ERRCODE = 'CF' || status, MESSAGE = message;
  END $$;

  -- The user as at the sign-in; the lock orders changes of one user's tokens.
  CREATE FUNCTION lock_signed_in(the_uid text, the_sign_outs integer) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM 1 FROM users WHERE uid = the_uid AND sign_outs = the_sign_outs FOR NO KEY UPDATE;
    IF NOT FOUND THEN PERFORM refuse(401, 'Authorization required'); END IF;
  END $$;

  CREATE FUNCTION add_refresh_token(
    token text, the_uid text, the_sign_outs integer, the_application text, network text,
    networks_max integer, tokens_max integer, now_ms bigint
  ) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM lock_signed_in(the_uid, the_sign_outs);
    INSERT INTO refresh_tokens VALUES (token, the_uid, the_application, now_ms, now_ms);
    DELETE FROM refresh_tokens WHERE hash IN
      (SELECT hash FROM refresh_tokens WHERE uid = the_uid ORDER BY used_ms DESC, hash DESC OFFSET tokens_max);
    UPDATE users SET networks = (array_prepend(network, array_remove(networks, network)))[1:networks_max]
      WHERE uid = the_uid AND NOT network = ANY (networks[1:networks_max / 2]);
  END $$;

  CREATE FUNCTION add_access_token(
    token text, the_refresh_token text, key_id text, key_hash bytea, any_keys boolean,
    tokens_max integer, used_step_ms bigint, now_ms bigint, the_expires_ms bigint
  ) RETURNS text LANGUAGE plpgsql AS $$
  DECLARE r refresh_tokens;
  BEGIN
    SELECT * INTO r FROM refresh_tokens WHERE hash = the_refresh_token;
    IF NOT any_keys AND NOT (
        EXISTS (SELECT FROM key_pairs WHERE access_key_id = key_id AND secret_hash = key_hash)
        AND EXISTS (SELECT FROM applications WHERE id = r.application AND enabled))
      THEN PERFORM refuse(401, 'Authorization required'); END IF;
    PERFORM 1 FROM users WHERE uid = r.uid FOR NO KEY UPDATE;
    UPDATE refresh_tokens SET used_ms = CASE WHEN now_ms - used_ms < used_step_ms THEN used_ms ELSE now_ms END
      WHERE hash = the_refresh_token;
    IF NOT FOUND THEN PERFORM refuse(401, 'Authorization required'); END IF;
    PERFORM insert_access_token(token, r.uid, the_refresh_token, tokens_max, the_expires_ms);
    RETURN r.uid;
  END $$;

  CREATE FUNCTION add_access_token_by_password(
    token text, the_uid text, the_sign_outs integer, tokens_max integer, the_expires_ms bigint
  ) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM lock_signed_in(the_uid, the_sign_outs);
    PERFORM insert_access_token(token, the_uid, NULL, tokens_max, the_expires_ms);
  END $$;

  CREATE FUNCTION insert_access_token(
    token text, the_uid text, the_refresh_token text, tokens_max integer, the_expires_ms bigint
  ) RETURNS void LANGUAGE sql AS $$
    INSERT INTO access_tokens VALUES (token, the_uid, the_refresh_token, the_expires_ms);
    DELETE FROM access_tokens WHERE hash IN
      (SELECT hash FROM access_tokens WHERE uid = the_uid ORDER BY expires_ms DESC, hash DESC OFFSET tokens_max);
  $$;

  CREATE FUNCTION sign_out(the_uid text) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE ended bigint;
  BEGIN
    UPDATE users SET sign_outs = sign_outs + 1 WHERE uid = the_uid;
    DELETE FROM access_tokens WHERE uid = the_uid;
    DELETE FROM refresh_tokens WHERE uid = the_uid;
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
  END $$;

  CREATE FUNCTION add_key_pair(the_uid text, id text, secret bytea, pairs_max integer, now_ms bigint)
  RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM 1 FROM users WHERE uid = the_uid FOR NO KEY UPDATE;
    IF (SELECT count(*) FROM key_pairs WHERE uid = the_uid) >= pairs_max THEN RETURN false; END IF;
    INSERT INTO key_pairs VALUES (id, the_uid, secret, now_ms);
    RETURN true;
  END $$;

  -- The innermost folder through which the caller receives what lies in the folder \`at\`.
  CREATE FUNCTION share_above(caller text, the_owner text, at text) RETURNS text LANGUAGE plpgsql STABLE AS $$
  BEGIN
    FOR depth IN 1..10000 LOOP
      EXIT WHEN at IS NULL OR at = 'folders';
      IF EXISTS (SELECT FROM shares WHERE receiver = caller AND owner = the_owner AND folder = at) THEN RETURN at; END IF;
      SELECT parent INTO at FROM resources WHERE uid = the_owner AND local = at;
    END LOOP;
    RETURN NULL;
  END $$;

  -- 'write', 'read' or null.
  CREATE FUNCTION permission(caller text, r resources) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.uid = caller THEN 'write' ELSE (
      SELECT CASE WHEN write_allowed THEN 'write' ELSE 'read' END FROM shares
      WHERE receiver = caller AND owner = r.uid
        AND folder = share_above(caller, r.uid, CASE WHEN r.is_file THEN r.parent ELSE r.local END)) END
  $$;

  -- A row that the caller may see, or with \`need\` 'write' change.
  CREATE FUNCTION entry(caller text, the_uid text, the_local text, need text, file boolean, lock boolean)
  RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE r resources; allowed text;
  BEGIN
    IF lock THEN SELECT * INTO r FROM resources WHERE uid = the_uid AND local = the_local FOR NO KEY UPDATE;
    ELSE SELECT * INTO r FROM resources WHERE uid = the_uid AND local = the_local;
    END IF;
    IF FOUND THEN allowed := permission(caller, r); END IF;
    IF allowed IS NULL THEN PERFORM refuse(404, 'Not found'); END IF;
    IF need = 'write' AND allowed <> 'write' THEN PERFORM refuse(403, 'Not allowed'); END IF;
    IF file AND NOT r.is_file THEN PERFORM refuse(400, 'Not a file'); END IF;
    IF NOT file AND r.is_file THEN PERFORM refuse(400, 'Not a folder'); END IF;
    RETURN r;
  END $$;

  -- \`names\`: 'any', 'unique' or 'folded'.
  CREATE FUNCTION check_free(r resources, names text) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    IF names = 'any' OR r.parent = '9' THEN RETURN; END IF;
    IF EXISTS (SELECT FROM resources WHERE uid = r.uid AND parent = r.parent AND name_hash = r.name_hash
        AND local <> r.local AND (names = 'folded' OR name = r.name))
      THEN PERFORM refuse(409, 'Name is already in use'); END IF;
  END $$;

  -- The parent is locked first: so numbers in one folder are committed in their order, and a page skips none.
  CREATE FUNCTION add_entry(
    caller text, the_uid text, the_parent text, file boolean, the_name text, the_hash text, the_media_type text,
    the_role text, the_workspace text, suffix text, names text, now_ms bigint
  ) RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE r resources;
  BEGIN
    IF the_parent = 'folders' THEN PERFORM 1 FROM users WHERE uid = the_uid FOR NO KEY UPDATE;
    ELSE PERFORM entry(caller, the_uid, the_parent, 'write', false, true);
    END IF;
    r.uid := the_uid; r.parent := the_parent; r.is_file := file; r.name := the_name; r.name_hash := the_hash;
    r.media_type := the_media_type; r.role := the_role; r.workspace := the_workspace; r.created_ms := now_ms;
    r.seq := nextval('numbers');
    r.local := r.seq || '_' || suffix;
    PERFORM check_free(r, names);
    INSERT INTO resources SELECT r.*;
    RETURN r;
  END $$;

  -- Several creations in one folder and one commit. A refused one leaves nothing behind, and does not affect the others.
  CREATE FUNCTION add_entries(
    callers text[], the_uid text, the_parent text, file boolean[], new_names text[], hashes text[], media_types text[],
    roles text[], suffixes text[], names text, now_ms bigint
  ) RETURNS TABLE (local text, refusal integer, message text) LANGUAGE plpgsql AS $$
  BEGIN
    FOR i IN 1..cardinality(suffixes) LOOP
      BEGIN
        local := (add_entry(callers[i], the_uid, the_parent, file[i], new_names[i], hashes[i], media_types[i], roles[i],
          NULL, suffixes[i], names, now_ms)).local;
        refusal := NULL;
        message := NULL;
      EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE NOT LIKE 'CF%' THEN RAISE; END IF;
        local := NULL;
        refusal := substr(SQLSTATE, 3)::integer;
        message := SQLERRM;
      END;
      RETURN NEXT;
    END LOOP;
  END $$;

  CREATE FUNCTION lies_within(the_uid text, at text, ancestor text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
  BEGIN
    FOR depth IN 1..10000 LOOP
      IF at IS NULL THEN RETURN false; END IF;
      IF at = ancestor THEN RETURN true; END IF;
      SELECT parent INTO at FROM resources WHERE uid = the_uid AND local = at;
    END LOOP;
    RETURN true;
  END $$;

  -- Null for what does not change; \`link\`: the token of a new link, or '' to withdraw it.
  CREATE FUNCTION change_entry(
    caller text, the_uid text, the_local text, file boolean, new_name text, new_hash text,
    to_uid text, to_local text, new_media_type text, link text, names text
  ) RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE r resources; target resources; is_own_trash boolean; is_share boolean; old_parent text; parent_now text;
  BEGIN
    -- Moves of folders one after the other: two of them could make a loop.
    IF NOT file THEN PERFORM pg_advisory_xact_lock(hashtextextended(the_uid, 0)); END IF;
    r := entry(caller, the_uid, the_local, 'write', file, false);
    old_parent := r.parent;
    is_share := NOT r.is_file AND r.uid <> caller
      AND EXISTS (SELECT FROM shares WHERE receiver = caller AND owner = r.uid AND folder = r.local);
    IF to_local IS NOT NULL AND NOT (to_uid = r.uid AND to_local = r.parent) THEN
      IF is_share THEN PERFORM refuse(403, 'Can not move a share.'); END IF;
      is_own_trash := to_uid = caller AND to_local = '9';
      IF is_own_trash THEN
        SELECT * INTO target FROM resources WHERE uid = r.uid AND local = '9' FOR NO KEY UPDATE;
      ELSE
        BEGIN
          target := entry(caller, to_uid, to_local, 'write', false, true);
        EXCEPTION WHEN SQLSTATE 'CF404' THEN
          IF to_uid <> caller THEN PERFORM refuse(403, 'Not allowed'); END IF;
          RAISE;
        END;
      END IF;
      IF target.uid <> r.uid THEN PERFORM refuse(403, 'Can not move to another account.'); END IF;
      IF r.uid <> caller AND NOT is_own_trash AND
          share_above(caller, r.uid, CASE WHEN file THEN r.parent ELSE r.local END)
            IS DISTINCT FROM share_above(caller, r.uid, target.local)
        THEN PERFORM refuse(403, 'Can not move to another share.'); END IF;
      r.parent := target.local;
    ELSIF new_name IS NOT NULL AND names <> 'any' THEN
      PERFORM 1 FROM resources WHERE uid = r.uid AND local = r.parent FOR NO KEY UPDATE;
    END IF;
    SELECT parent INTO parent_now FROM resources WHERE uid = the_uid AND local = the_local FOR NO KEY UPDATE;
    IF NOT FOUND THEN PERFORM refuse(404, 'Not found'); END IF;
    -- Moved between the look and the lock: repeat it.
    IF parent_now <> old_parent THEN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'moved meanwhile'; END IF;
    -- With its lock: what others changed meanwhile stays.
    SELECT name, name_hash, media_type, public_link, newest_seq, newest_size, newest_modified_ms, newest_blob
      INTO r.name, r.name_hash, r.media_type, r.public_link, r.newest_seq, r.newest_size, r.newest_modified_ms,
        r.newest_blob
      FROM resources WHERE uid = the_uid AND local = the_local;
    IF NOT file THEN
      IF coalesce(new_name, r.name) = r.name AND r.parent = old_parent THEN RETURN r; END IF;
      IF is_share THEN PERFORM refuse(403, 'Can not rename a share.'); END IF;
      IF r.role <> 'plain' THEN PERFORM refuse(403, 'Can not move sync folder.'); END IF;
      IF lies_within(r.uid, r.parent, r.local) THEN PERFORM refuse(403, 'Can not move a folder into itself.'); END IF;
    ELSE
      IF link IS NOT NULL AND (link = '') = (r.public_link IS NOT NULL) THEN
        IF r.uid <> caller THEN PERFORM refuse(403, 'Only the owner can link a file.'); END IF;
        r.public_link := nullif(link, '');
      END IF;
      r.media_type := coalesce(new_media_type, r.media_type);
    END IF;
    IF coalesce(new_name, r.name) <> r.name OR r.parent <> old_parent THEN
      r.name := coalesce(new_name, r.name); r.name_hash := coalesce(new_hash, r.name_hash);
      PERFORM check_free(r, names);
    END IF;
    UPDATE resources SET name = r.name, name_hash = r.name_hash, parent = r.parent, media_type = r.media_type,
      public_link = r.public_link WHERE uid = the_uid AND local = the_local;
    RETURN r;
  END $$;

  CREATE FUNCTION delete_folder(caller text, the_uid text, the_local text) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE r resources;
  BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(the_uid, 0));
    r := entry(caller, the_uid, the_local, 'write', false, true);
    IF r.role = 'system' THEN PERFORM refuse(403, 'Can not delete system folder.'); END IF;
    IF r.uid <> caller AND EXISTS (SELECT FROM shares WHERE receiver = caller AND owner = r.uid AND folder = r.local)
      THEN PERFORM refuse(403, 'Can not delete a share.'); END IF;
    DELETE FROM resources WHERE uid = the_uid AND local = the_local;
  END $$;

  CREATE FUNCTION delete_file(caller text, the_uid text, the_local text) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE r resources;
  BEGIN
    r := entry(caller, the_uid, the_local, 'write', true, true);
    DELETE FROM resources WHERE uid = the_uid AND local = the_local;
    UPDATE users SET usage_bytes = greatest(0, usage_bytes - r.newest_size) WHERE uid = the_uid AND r.newest_size > 0;
  END $$;

  CREATE FUNCTION add_version(caller text, the_uid text, the_file text, suffix text, the_blob text, now_ms bigint)
  RETURNS versions LANGUAGE plpgsql AS $$
  DECLARE r resources; v versions;
  BEGIN
    r := entry(caller, the_uid, the_file, 'write', true, true);
    v.uid := r.uid; v.file := r.local; v.seq := nextval('numbers'); v.version := v.seq || '_' || suffix;
    v.created_ms := now_ms; v.last_modified_ms := now_ms; v.media_type := r.media_type; v.complete := false;
    v.size_bytes := 0; v.blob := the_blob;
    INSERT INTO versions SELECT v.*;
    RETURN v;
  END $$;
  `,
];

/** The first key of the advisory locks for turns; the second is the account. */
const TURNS = 6_387_251;

/** Functions of `schema.ts`: refusals, accounts with their limits and tokens, and the permission to see or change an entry. */
export const ACCOUNT_FUNCTIONS = `
  CREATE FUNCTION refuse(status integer, message text) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    RAISE EXCEPTION USING ERRCODE = 'CF' || status, MESSAGE = message;
  END $$;

  -- The first statement of each change of an account.
  CREATE FUNCTION lock_account(the_uid text) RETURNS users LANGUAGE plpgsql AS $$
  DECLARE u users;
  BEGIN
    SELECT * INTO u FROM users WHERE uid = the_uid FOR NO KEY UPDATE;
    IF NOT FOUND THEN PERFORM refuse(404, 'Not found'); END IF;
    RETURN u;
  END $$;

  -- A group of calls takes the turn of its account before the account's lock. Returns whether another group had the turn. With 'own'
  -- it has waited for it. With 'free' it has waited only until the turn was free: the server then sends the group again, with the
  -- calls that arrived meanwhile. With 'joined', for one of several accounts in a statement, it has not waited, and also returns
  -- true if another change has locked the account.
  CREATE FUNCTION take_turn(the_uid text, turn text) RETURNS boolean LANGUAGE plpgsql AS $$
  DECLARE of_account integer := hashtext(the_uid);
  BEGIN
    IF pg_try_advisory_xact_lock(${TURNS}, of_account) THEN
      IF turn <> 'joined' THEN RETURN false; END IF;
      PERFORM FROM users WHERE uid = the_uid FOR NO KEY UPDATE SKIP LOCKED;
      RETURN NOT FOUND;
    END IF;
    IF turn = 'free' THEN PERFORM pg_advisory_xact_lock_shared(${TURNS}, of_account);
    ELSIF turn = 'own' THEN PERFORM pg_advisory_xact_lock(${TURNS}, of_account); END IF;
    RETURN true;
  END $$;

  -- \`limits\`: entries, unfinished uploads, bytes as a multiple of the quota, bytes beside it.
  CREATE FUNCTION spare_bytes(u users, limits bigint[]) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT limits[3] * greatest(u.quota_bytes, u.usage_bytes) + limits[4] - u.held_bytes
  $$;

  -- Drops versions until \`bytes\` more fit and a tenth of the limit is free: complete ones beyond the newest five of their file, the
  -- oldest first, then older ones among the five. A file's content always stays. With 0 bytes, drops the oldest tenth of the
  -- unfinished uploads that are not active. \`of_file\`: only versions of that file; null for all.
  CREATE FUNCTION make_room(the_uid text, of_file text, bytes bigint, limits bigint[]) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE u users; slack bigint; needed bigint;
  BEGIN
    IF bytes = 0 THEN
      DELETE FROM versions WHERE uid = the_uid AND (file, seq) IN (
        SELECT file, seq FROM versions
        WHERE uid = the_uid AND (of_file IS NULL OR file = of_file) AND NOT complete AND lease_until < clock_timestamp()
        ORDER BY last_modified_ms, seq LIMIT greatest(1, limits[2] / 10));
      RETURN;
    END IF;
    FOR among_kept IN 0..1 LOOP
      SELECT * INTO u FROM users WHERE uid = the_uid;
      slack := (spare_bytes(u, limits) + u.held_bytes) / 10;
      needed := bytes + CASE among_kept WHEN 0 THEN slack ELSE 0 END - spare_bytes(u, limits);
      EXIT WHEN among_kept = 1 AND needed <= 0;
      WITH ranked AS (
        SELECT file, seq, 1024 + size_bytes AS held, row_number() OVER (PARTITION BY file ORDER BY seq DESC) AS rank
        FROM versions WHERE uid = the_uid AND (of_file IS NULL OR file = of_file) AND complete
      ), old AS (
        SELECT file, seq, sum(held) OVER (ORDER BY seq) - held AS before FROM ranked
        WHERE rank > 1 AND (rank > 5) = (among_kept = 0)
      ) DELETE FROM versions v USING old
        WHERE v.uid = the_uid AND v.file = old.file AND v.seq = old.seq AND old.before < needed;
    END LOOP;
  END $$;

  -- Counts what a change stores, or with negative numbers removes. Old versions make room: so a history never forbids a save.
  -- \`of_file\`: as for make_room; '' drops nothing.
  CREATE FUNCTION hold(
    the_uid text, of_file text, more_entries bigint, more_unfinished bigint, more_bytes bigint, limits bigint[]
  ) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE u users;
  BEGIN
    UPDATE users SET entries = greatest(0, entries + more_entries), unfinished = greatest(0, unfinished + more_unfinished),
      held_bytes = greatest(0, held_bytes + more_bytes) WHERE uid = the_uid RETURNING * INTO u;
    IF more_entries > 0 AND u.entries > limits[1] THEN PERFORM refuse(413, 'Too many files and folders'); END IF;
    IF more_unfinished > 0 AND u.unfinished > limits[2] THEN
      PERFORM make_room(the_uid, of_file, 0, limits);
      SELECT * INTO u FROM users WHERE uid = the_uid;
      IF u.unfinished > limits[2] THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
    END IF;
    IF more_bytes > 0 AND spare_bytes(u, limits) < 0 THEN
      PERFORM make_room(the_uid, of_file, more_bytes, limits);
      SELECT * INTO u FROM users WHERE uid = the_uid;
      IF spare_bytes(u, limits) < 0 THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
    END IF;
  END $$;

  CREATE FUNCTION entry_bytes(r resources) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 1024 + 2 * char_length(r.name) + CASE WHEN r.public_link IS NULL THEN 0 ELSE 256 END
  $$;

  -- Whatever deletes versions: their counts, and their blobs after the last reference. The account is locked.
  CREATE FUNCTION versions_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF NOT EXISTS (SELECT FROM gone) THEN RETURN NULL; END IF;
    UPDATE users u SET held_bytes = greatest(0, u.held_bytes - g.bytes), unfinished = greatest(0, u.unfinished - g.unfinished)
      FROM (
        SELECT uid, sum(1024 + size_bytes) AS bytes, count(*) FILTER (WHERE NOT complete AND NOT hidden) AS unfinished
        FROM gone GROUP BY uid
      ) g WHERE u.uid = g.uid;
    PERFORM 1 FROM blobs WHERE name IN (SELECT blob FROM gone) ORDER BY name FOR UPDATE;
    UPDATE blobs b SET refs = b.refs - g.refs FROM (SELECT blob, count(*) AS refs FROM gone GROUP BY blob) g
      WHERE b.name = g.blob;
    WITH dead AS (DELETE FROM blobs WHERE name IN (SELECT blob FROM gone) AND refs <= 0 RETURNING name),
      freed AS (DELETE FROM parts WHERE blob IN (SELECT name FROM dead) RETURNING key)
    UPDATE objects SET state = 'dying', since = clock_timestamp() WHERE key IN (SELECT key FROM freed);
    RETURN NULL;
  END $$;
  CREATE TRIGGER versions_deleted AFTER DELETE ON versions REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION versions_deleted();

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

  -- A row for each token, in their order; nulls for one that is not valid.
  CREATE FUNCTION sessions(tokens text[], now_ms bigint)
  RETURNS TABLE (uid text, refresh_token text, sign_outs integer) LANGUAGE plpgsql STABLE AS $$
  #variable_conflict use_column
  DECLARE token text;
  BEGIN
    FOREACH token IN ARRAY tokens LOOP
      SELECT uid, refresh_token, users.sign_outs INTO sessions.uid, sessions.refresh_token, sessions.sign_outs
        FROM access_tokens JOIN users USING (uid) WHERE access_tokens.hash = token AND expires_ms > now_ms;
      RETURN NEXT;
    END LOOP;
  END $$;

  -- The check of the access token within a rule. \`token\`: null for a caller who was checked before.
  CREATE FUNCTION check_token(token text, caller text, now_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    IF token IS NULL THEN RETURN; END IF;
    -- By the hash alone: the planner of a new database could take another index.
    IF caller IS DISTINCT FROM (SELECT uid FROM access_tokens WHERE hash = token AND expires_ms > now_ms)
      THEN PERFORM refuse(401, 'Authorization required'); END IF;
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

  -- 'write', 'read' or null. In plpgsql: a function in SQL is planned again at every call.
  CREATE FUNCTION permission(caller text, r resources) RETURNS text LANGUAGE plpgsql STABLE AS $$
  BEGIN
    IF r.uid = caller THEN RETURN 'write'; END IF;
    RETURN (SELECT CASE WHEN write_allowed THEN 'write' ELSE 'read' END FROM shares
      WHERE receiver = caller AND owner = r.uid
        AND folder = share_above(caller, r.uid, CASE WHEN r.is_file THEN r.parent ELSE r.local END));
  END $$;

  -- A row that the caller may see, or with \`need\` 'write' change.
  CREATE FUNCTION entry(caller text, the_uid text, the_local text, need text, file boolean)
  RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE r resources; allowed text;
  BEGIN
    SELECT * INTO r FROM resources WHERE uid = the_uid AND local = the_local;
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
`;

/** Functions of `schema.ts`: versions, uploads, and the objects of their bytes. */
export const VERSION_FUNCTIONS = `
  -- A version without data yet. \`hidden\`: of an upload in one step, whose place was reserved at its beginning.
  CREATE FUNCTION begin_version(
    caller text, the_uid text, the_file text, place bigint, suffix text, the_blob text, the_created_ms bigint,
    is_hidden boolean, lease interval, limits bigint[] DEFAULT '{1000000,1000,10,16777216}'
  ) RETURNS versions LANGUAGE plpgsql AS $$
  DECLARE r resources; v versions;
  BEGIN
    PERFORM lock_account(the_uid);
    r := entry(caller, the_uid, the_file, 'write', true);
    v.uid := r.uid; v.file := r.local; v.seq := coalesce(place, nextval('numbers')); v.version := v.seq || '_' || suffix;
    v.created_ms := the_created_ms; v.last_modified_ms := the_created_ms; v.media_type := r.media_type;
    v.complete := false; v.size_bytes := 0; v.blob := the_blob; v.hidden := is_hidden;
    v.epoch := CASE WHEN is_hidden THEN 1 ELSE 0 END;
    v.lease_until := CASE WHEN is_hidden THEN clock_timestamp() + lease ELSE '-infinity' END;
    PERFORM hold(the_uid, room_of(caller, r), 0, CASE WHEN is_hidden THEN 0 ELSE 1 END, 1024, limits);
    INSERT INTO blobs VALUES (the_blob, 1, NULL);
    INSERT INTO versions SELECT v.*;
    RETURN v;
  END $$;

  -- A receiver of a share drops only old versions of the file that he saves.
  CREATE FUNCTION room_of(caller text, r resources) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN caller = r.uid THEN NULL ELSE r.local END
  $$;

  -- The bytes that may arrive after \`at\`. \`announced\`: null for a body of unknown length, which finds some room.
  CREATE FUNCTION room_for(u users, r resources, of_file text, at bigint, announced bigint, limits bigint[])
  RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE quota_room bigint; wanted bigint;
  BEGIN
    quota_room := greatest(0, u.quota_bytes - u.usage_bytes) + coalesce(r.newest_size, 0) - at;
    IF announced > quota_room THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
    wanted := coalesce(announced, least(quota_room, 67108864));
    IF wanted > spare_bytes(u, limits) THEN
      PERFORM make_room(u.uid, of_file, greatest(1, wanted), limits);
      SELECT * INTO u FROM users WHERE uid = u.uid;
    END IF;
    IF announced > spare_bytes(u, limits) THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
    RETURN greatest(0, least(quota_room, spare_bytes(u, limits)));
  END $$;

  -- The places of uploads in one step in the histories of their files; null for a token that is not valid.
  CREATE FUNCTION places(tokens text[], callers text[], now_ms bigint) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
  BEGIN
    FOR i IN 1..cardinality(tokens) LOOP
      RETURN NEXT CASE WHEN callers[i] = (SELECT uid FROM access_tokens WHERE hash = tokens[i] AND expires_ms > now_ms)
        THEN nextval('numbers') END;
    END LOOP;
  END $$;

  -- The room of an upload in one step, and its place in the history.
  CREATE FUNCTION place_upload(caller text, token text, the_uid text, the_file text, announced bigint, now_ms bigint, limits bigint[])
  RETURNS TABLE (place bigint, room bigint) LANGUAGE plpgsql AS $$
  DECLARE u users; r resources;
  BEGIN
    u := lock_account(the_uid);
    PERFORM check_token(token, caller, now_ms);
    r := entry(caller, the_uid, the_file, 'write', true);
    room := room_for(u, r, room_of(caller, r), 0, announced, limits);
    place := nextval('numbers');
    RETURN NEXT;
  END $$;

  -- Makes the caller the only sender of a version.
  CREATE FUNCTION take_upload(
    caller text, the_uid text, the_file text, the_seq bigint, at bigint, announced bigint, lease interval, now_ms bigint,
    limits bigint[]
  ) RETURNS TABLE (epoch bigint, room bigint) LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE u users; r resources; v versions;
  BEGIN
    u := lock_account(the_uid);
    r := entry(caller, the_uid, the_file, 'write', true);
    SELECT * INTO v FROM versions WHERE uid = the_uid AND file = the_file AND seq = the_seq;
    IF NOT FOUND THEN PERFORM refuse(404, 'Not found'); END IF;
    IF v.complete THEN PERFORM refuse(403, 'The data of this version can not be replaced'); END IF;
    IF v.lease_until > clock_timestamp() OR v.size_bytes <> at THEN PERFORM wrong_offset(v.size_bytes); END IF;
    room := room_for(u, r, room_of(caller, r), at, announced, limits);
    UPDATE versions SET epoch = epoch + 1, lease_until = clock_timestamp() + lease, last_modified_ms = now_ms
      WHERE uid = the_uid AND file = the_file AND seq = the_seq RETURNING versions.epoch INTO epoch;
    RETURN NEXT;
  END $$;

  CREATE FUNCTION wrong_offset(stored bigint) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    RAISE EXCEPTION USING ERRCODE = 'CF416', MESSAGE = 'The data do not continue what is stored', DETAIL = stored::text;
  END $$;

  -- The version of the sender with that epoch.
  CREATE FUNCTION own_upload(the_uid text, the_file text, the_seq bigint, the_epoch bigint)
  RETURNS versions LANGUAGE plpgsql AS $$
  DECLARE v versions;
  BEGIN
    SELECT * INTO v FROM versions WHERE uid = the_uid AND file = the_file AND seq = the_seq;
    IF NOT FOUND THEN PERFORM refuse(404, 'Not found'); END IF;
    IF v.epoch <> the_epoch OR v.complete THEN PERFORM wrong_offset(v.size_bytes); END IF;
    RETURN v;
  END $$;

  -- The object becomes the next part of the version.
  CREATE FUNCTION append_part(v versions, of_file text, the_key text, the_etag text, bytes bigint, limits bigint[])
  RETURNS versions LANGUAGE plpgsql AS $$
  BEGIN
    UPDATE objects SET state = 'live' WHERE key = the_key AND state = 'arriving';
    -- The collector took it for interrupted.
    IF NOT FOUND THEN PERFORM wrong_offset(v.size_bytes); END IF;
    INSERT INTO parts VALUES (v.blob, v.size_bytes, bytes, the_key, the_etag);
    PERFORM hold(v.uid, of_file, 0, 0, bytes, limits);
    v.size_bytes := v.size_bytes + bytes;
    RETURN v;
  END $$;

  -- Records a part, or none, and renews the lease or with \`is_last\` ends it.
  CREATE FUNCTION add_part(
    caller text, the_uid text, the_file text, the_seq bigint, the_epoch bigint, the_key text, the_etag text, bytes bigint,
    is_last boolean, lease interval, now_ms bigint, limits bigint[]
  ) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE v versions;
  BEGIN
    PERFORM lock_account(the_uid);
    v := own_upload(the_uid, the_file, the_seq, the_epoch);
    IF the_key IS NOT NULL THEN
      v := append_part(v, CASE WHEN caller = the_uid THEN NULL ELSE the_file END, the_key, the_etag, bytes, limits);
    END IF;
    UPDATE versions SET size_bytes = v.size_bytes, last_modified_ms = now_ms,
      lease_until = CASE WHEN is_last THEN '-infinity' ELSE clock_timestamp() + lease END
      WHERE uid = the_uid AND file = the_file AND seq = the_seq;
    RETURN v.size_bytes;
  END $$;

  -- Permission and sign-in may have been withdrawn while the bytes arrived.
  CREATE FUNCTION check_session(caller text, the_refresh_token text, the_sign_outs integer) RETURNS void
  LANGUAGE plpgsql AS $$
  BEGIN
    -- Two statements: the plan of each is kept.
    IF the_refresh_token IS NULL THEN PERFORM FROM users WHERE uid = caller AND sign_outs = the_sign_outs;
    ELSE PERFORM FROM refresh_tokens WHERE hash = the_refresh_token; END IF;
    IF NOT FOUND THEN PERFORM refuse(401, 'Authorization required'); END IF;
  END $$;

  -- Completes a version with its last part, or with its few bytes.
  CREATE FUNCTION finish_upload(
    caller text, the_refresh_token text, the_sign_outs integer, the_uid text, the_file text, the_seq bigint,
    the_epoch bigint, the_key text, the_etag text, bytes bigint, content bytea, the_sha256 text, kept bigint, now_ms bigint,
    limits bigint[]
  ) RETURNS versions LANGUAGE plpgsql AS $$
  DECLARE r resources; v versions; of_file text;
  BEGIN
    PERFORM lock_account(the_uid);
    PERFORM check_session(caller, the_refresh_token, the_sign_outs);
    r := entry(caller, the_uid, the_file, 'write', true);
    of_file := room_of(caller, r);
    v := own_upload(the_uid, the_file, the_seq, the_epoch);
    IF the_key IS NOT NULL THEN v := append_part(v, of_file, the_key, the_etag, bytes, limits); END IF;
    IF content IS NOT NULL THEN
      UPDATE blobs SET bytes = content WHERE name = v.blob;
      PERFORM hold(the_uid, of_file, 0, 0, octet_length(content), limits);
      v.size_bytes := octet_length(content);
    END IF;
    RETURN complete_version(v, r, the_sha256, kept, now_ms, limits);
  END $$;

  -- The version is the file's content unless a later one is complete.
  CREATE FUNCTION complete_version(
    v versions, r resources, the_sha256 text, kept bigint, now_ms bigint, limits bigint[]
  ) RETURNS versions LANGUAGE plpgsql AS $$
  DECLARE u users; more bigint;
  BEGIN
    IF NOT v.hidden THEN PERFORM hold(v.uid, '', 0, -1, 0, limits); END IF;
    v.complete := true; v.hidden := false; v.lease_until := '-infinity'; v.sha256 := the_sha256;
    v.last_modified_ms := now_ms;
    UPDATE versions SET complete = true, hidden = false, lease_until = '-infinity', sha256 = the_sha256,
      last_modified_ms = now_ms, size_bytes = v.size_bytes WHERE uid = v.uid AND file = v.file AND seq = v.seq;
    IF v.seq > coalesce(r.newest_seq, 0) THEN
      more := v.size_bytes - coalesce(r.newest_size, 0);
      SELECT * INTO u FROM users WHERE uid = v.uid;
      -- A file that does not grow is always accepted.
      IF more > 0 AND u.usage_bytes + more > u.quota_bytes THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
      UPDATE resources SET newest_seq = v.seq, newest_size = v.size_bytes, newest_modified_ms = now_ms, newest_blob = v.blob
        WHERE uid = v.uid AND local = v.file;
      UPDATE users SET usage_bytes = greatest(0, usage_bytes + more) WHERE uid = v.uid;
    END IF;
    PERFORM keep_newest(v.uid, v.file, kept);
    RETURN v;
  END $$;

  -- A whole version that arrived in one step, as few bytes or one object.
  CREATE FUNCTION replace_data(
    caller text, the_refresh_token text, the_sign_outs integer, the_uid text, the_file text, place bigint, suffix text,
    the_blob text, the_created_ms bigint, the_key text, the_etag text, bytes bigint, content bytea, the_sha256 text,
    kept bigint, now_ms bigint, limits bigint[]
  ) RETURNS versions LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM begin_version(caller, the_uid, the_file, place, suffix, the_blob, the_created_ms, true, '1 minute', limits);
    RETURN finish_upload(caller, the_refresh_token, the_sign_outs, the_uid, the_file, place, 1, the_key, the_etag, bytes,
      content, the_sha256, kept, now_ms, limits);
  END $$;

  -- A whole version of few bytes. \`drops\`: as for add_entry.
  CREATE FUNCTION save(
    caller text, the_refresh_token text, the_sign_outs integer, the_uid text, the_file text, place bigint, suffix text,
    the_blob text, the_created_ms bigint, content bytea, the_sha256 text, kept bigint, now_ms bigint, limits bigint[],
    drops boolean DEFAULT true
  ) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE u users; r resources; size bigint := octet_length(content); more bigint := 0;
  BEGIN
    u := lock_account(the_uid);
    PERFORM check_session(caller, the_refresh_token, the_sign_outs);
    r := entry(caller, the_uid, the_file, 'write', true);
    IF place > coalesce(r.newest_seq, 0) THEN more := size - coalesce(r.newest_size, 0); END IF;
    -- A file that does not grow is always accepted.
    IF more > 0 AND u.usage_bytes + more > u.quota_bytes THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
    UPDATE users SET held_bytes = held_bytes + 1024 + size, usage_bytes = greatest(0, usage_bytes + more)
      WHERE uid = the_uid RETURNING * INTO u;
    IF spare_bytes(u, limits) < 0 THEN
      PERFORM make_room(the_uid, CASE WHEN drops THEN room_of(caller, r) ELSE '' END, 1024 + size, limits);
      SELECT * INTO u FROM users WHERE uid = the_uid;
      IF spare_bytes(u, limits) < 0 THEN PERFORM refuse(413, 'Storage limit exceeded'); END IF;
    END IF;
    INSERT INTO blobs VALUES (the_blob, 1, content);
    INSERT INTO versions VALUES (the_uid, the_file, place, place || '_' || suffix, the_created_ms, now_ms, r.media_type,
      true, size, the_blob, the_sha256);
    IF place > coalesce(r.newest_seq, 0) THEN
      UPDATE resources SET newest_seq = place, newest_size = size, newest_modified_ms = now_ms, newest_blob = the_blob
        WHERE uid = the_uid AND local = the_file;
    END IF;
    PERFORM keep_newest(the_uid, the_file, kept);
  END $$;

  -- Several saves in one commit, as add_entries.
  CREATE FUNCTION save_all(
    callers text[], refresh_tokens text[], all_sign_outs integer[], uids text[], files text[], places bigint[],
    suffixes text[], new_blobs text[], all_created_ms bigint[], contents bytea[], hashes text[], kept bigint, now_ms bigint,
    limits bigint[], turn text, apart boolean
  ) RETURNS TABLE (refusal integer, message text, has_waited boolean) LANGUAGE plpgsql AS $$
  DECLARE uid text;
  BEGIN
    FOR i IN 1..cardinality(callers) LOOP
      IF uid IS DISTINCT FROM uids[i] THEN
        uid := uids[i];
        has_waited := take_turn(uid, turn);
      END IF;
      IF has_waited AND turn <> 'own' THEN
        RETURN NEXT;
        CONTINUE;
      END IF;
      IF NOT apart THEN
        PERFORM save(callers[i], refresh_tokens[i], all_sign_outs[i], uids[i], files[i], places[i], suffixes[i],
          new_blobs[i], all_created_ms[i], contents[i], hashes[i], kept, now_ms, limits, turn <> 'joined');
        RETURN NEXT;
        CONTINUE;
      END IF;
      BEGIN
        PERFORM save(callers[i], refresh_tokens[i], all_sign_outs[i], uids[i], files[i], places[i], suffixes[i],
          new_blobs[i], all_created_ms[i], contents[i], hashes[i], kept, now_ms, limits);
        refusal := NULL;
        message := NULL;
      EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE NOT LIKE 'CF%' THEN RAISE; END IF;
        refusal := substr(SQLSTATE, 3)::integer;
        message := SQLERRM;
      END;
      RETURN NEXT;
    END LOOP;
  END $$;

  CREATE FUNCTION keep_newest(the_uid text, the_file text, kept bigint) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    IF kept IS NULL THEN RETURN; END IF;
    DELETE FROM versions WHERE uid = the_uid AND file = the_file AND seq IN
      (SELECT seq FROM versions WHERE uid = the_uid AND file = the_file AND complete ORDER BY seq DESC OFFSET kept);
  END $$;

  -- A new file with the newest version of the source, whose bytes it shares.
  CREATE FUNCTION copy_file(
    caller text, token text, the_uid text, the_parent text, source_uid text, source text, the_name text, the_hash text,
    suffixes text[], names text, now_ms bigint, limits bigint[]
  ) RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE s resources; r resources; v versions;
  BEGIN
    PERFORM lock_account(the_uid);
    PERFORM check_token(token, caller, now_ms);
    s := entry(caller, source_uid, source, 'read', true);
    r := add_entry(caller, the_uid, the_parent, true, the_name, the_hash, s.media_type, NULL, NULL, suffixes[1], names,
      now_ms, limits);
    IF s.newest_seq IS NULL THEN RETURN r; END IF;
    SELECT * INTO v FROM versions WHERE uid = s.uid AND file = s.local AND seq = s.newest_seq;
    UPDATE blobs SET refs = refs + 1 WHERE name = v.blob;
    -- The version was deleted since the look at the file, in an account that is not locked.
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'deleted meanwhile'; END IF;
    v.uid := r.uid; v.file := r.local; v.seq := nextval('numbers'); v.version := v.seq || '_' || suffixes[2];
    v.created_ms := now_ms; v.media_type := r.media_type; v.complete := false; v.hidden := true;
    PERFORM hold(the_uid, CASE WHEN caller = the_uid THEN NULL ELSE '' END, 0, 0, 1024 + v.size_bytes, limits);
    INSERT INTO versions SELECT v.*;
    PERFORM complete_version(v, r, v.sha256, NULL, now_ms, limits);
    RETURN r;
  END $$;

  -- Deletes incomplete versions of an account: without progress since \`before_ms\`, or of uploads in one step that were cut.
  CREATE FUNCTION drop_abandoned(the_uid text, before_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE dropped bigint;
  BEGIN
    PERFORM lock_account(the_uid);
    DELETE FROM versions WHERE uid = the_uid AND NOT complete AND lease_until < clock_timestamp()
      AND (hidden OR last_modified_ms < before_ms);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
  END $$;

  -- The upload in one step was cut.
  CREATE FUNCTION forget_upload(the_uid text, the_file text, the_seq bigint, the_epoch bigint) RETURNS void
  LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM lock_account(the_uid);
    DELETE FROM versions WHERE uid = the_uid AND file = the_file AND seq = the_seq AND epoch = the_epoch AND hidden;
  END $$;

  -- Takes objects to be deleted from the store, for a minute: only one server deletes each.
  CREATE FUNCTION take_dying(dying_for interval, arriving_for interval, keys_max integer) RETURNS SETOF text
  LANGUAGE sql AS $$
    UPDATE objects SET state = 'dying', since = clock_timestamp() - dying_for + interval '1 minute' WHERE key IN (
      SELECT key FROM objects WHERE state = 'dying' AND since < clock_timestamp() - dying_for
        OR state = 'arriving' AND since < clock_timestamp() - arriving_for
      ORDER BY since LIMIT keys_max FOR UPDATE SKIP LOCKED
    ) RETURNING key
  $$;
`;

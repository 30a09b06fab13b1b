/** Functions of `schema.ts`: the rules for folders and files. */
export const ENTRY_FUNCTIONS = `
  -- The number follows the lock: so numbers in one folder are committed in their order, and a page skips none. \`drops\`: whether old
  -- versions make room.
  CREATE FUNCTION add_entry(
    caller text, the_uid text, the_parent text, file boolean, the_name text, the_hash text, the_media_type text,
    the_role text, the_workspace text, suffix text, names text, now_ms bigint,
    limits bigint[] DEFAULT '{1000000,1000,10,16777216}', token text DEFAULT NULL, drops boolean DEFAULT true
  ) RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE r resources;
  BEGIN
    PERFORM lock_account(the_uid);
    PERFORM check_token(token, caller, now_ms);
    IF the_parent <> 'folders' THEN PERFORM entry(caller, the_uid, the_parent, 'write', false); END IF;
    r.uid := the_uid; r.parent := the_parent; r.is_file := file; r.name := the_name; r.name_hash := the_hash;
    r.media_type := the_media_type; r.role := the_role; r.workspace := the_workspace; r.created_ms := now_ms;
    r.seq := nextval('numbers');
    r.local := r.seq || '_' || suffix;
    PERFORM check_free(r, names);
    PERFORM hold(the_uid, CASE WHEN drops AND caller = the_uid THEN NULL ELSE '' END, 1, 0, entry_bytes(r), limits);
    INSERT INTO resources SELECT r.*;
    RETURN r;
  END $$;

  -- Several creations in one commit, in one account or with the turn 'joined' in several: their accounts are in ascending order. A
  -- refused one undoes all; \`apart\`: it leaves nothing behind, and does not affect the others. That takes a subtransaction for each.
  -- Nothing is created in an account whose turn this was not.
  CREATE FUNCTION add_entries(
    callers text[], tokens text[], uids text[], parents text[], file boolean[], new_names text[], hashes text[], media_types text[],
    roles text[], suffixes text[], names text, now_ms bigint, limits bigint[], turn text, apart boolean
  ) RETURNS TABLE (uid text, local text, refusal integer, message text, has_waited boolean) LANGUAGE plpgsql AS $$
  BEGIN
    FOR i IN 1..cardinality(suffixes) LOOP
      IF uid IS DISTINCT FROM uids[i] THEN
        uid := uids[i];
        has_waited := take_turn(uid, turn);
      END IF;
      local := NULL;
      IF has_waited AND turn <> 'own' THEN
        RETURN NEXT;
        CONTINUE;
      END IF;
      IF NOT apart THEN
        local := (add_entry(callers[i], uids[i], parents[i], file[i], new_names[i], hashes[i], media_types[i], roles[i],
          NULL, suffixes[i], names, now_ms, limits, tokens[i], turn <> 'joined')).local;
        RETURN NEXT;
        CONTINUE;
      END IF;
      BEGIN
        local := (add_entry(callers[i], uids[i], parents[i], file[i], new_names[i], hashes[i], media_types[i], roles[i],
          NULL, suffixes[i], names, now_ms, limits, tokens[i])).local;
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
    to_uid text, to_local text, new_media_type text, link text, names text,
    limits bigint[] DEFAULT '{1000000,1000,10,16777216}'
  ) RETURNS resources LANGUAGE plpgsql AS $$
  DECLARE r resources; old resources; target resources; is_own_trash boolean; is_share boolean;
  BEGIN
    PERFORM lock_account(the_uid);
    r := entry(caller, the_uid, the_local, 'write', file);
    old := r;
    is_share := NOT r.is_file AND r.uid <> caller
      AND EXISTS (SELECT FROM shares WHERE receiver = caller AND owner = r.uid AND folder = r.local);
    IF to_local IS NOT NULL AND NOT (to_uid = r.uid AND to_local = r.parent) THEN
      IF is_share THEN PERFORM refuse(403, 'Can not move a share.'); END IF;
      is_own_trash := to_uid = caller AND to_local = '9';
      IF is_own_trash THEN
        SELECT * INTO target FROM resources WHERE uid = r.uid AND local = '9';
      ELSE
        BEGIN
          target := entry(caller, to_uid, to_local, 'write', false);
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
    END IF;
    IF NOT file THEN
      IF coalesce(new_name, r.name) = r.name AND r.parent = old.parent THEN RETURN r; END IF;
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
    IF coalesce(new_name, r.name) <> r.name OR r.parent <> old.parent THEN
      r.name := coalesce(new_name, r.name); r.name_hash := coalesce(new_hash, r.name_hash);
      PERFORM check_free(r, names);
    END IF;
    PERFORM hold(the_uid, CASE WHEN caller = the_uid THEN NULL ELSE '' END, 0, 0, entry_bytes(r) - entry_bytes(old), limits);
    UPDATE resources SET name = r.name, name_hash = r.name_hash, parent = r.parent, media_type = r.media_type,
      public_link = r.public_link WHERE uid = the_uid AND local = the_local;
    RETURN r;
  END $$;

  CREATE FUNCTION delete_folder(caller text, the_uid text, the_local text) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE r resources;
  BEGIN
    PERFORM lock_account(the_uid);
    r := entry(caller, the_uid, the_local, 'write', false);
    IF r.role = 'system' THEN PERFORM refuse(403, 'Can not delete system folder.'); END IF;
    IF r.uid <> caller AND EXISTS (SELECT FROM shares WHERE receiver = caller AND owner = r.uid AND folder = r.local)
      THEN PERFORM refuse(403, 'Can not delete a share.'); END IF;
    DELETE FROM resources WHERE uid = the_uid AND local = the_local;
    PERFORM hold(the_uid, '', -1, 0, -entry_bytes(r), NULL);
  END $$;

  CREATE FUNCTION delete_file(caller text, the_uid text, the_local text) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE r resources;
  BEGIN
    PERFORM lock_account(the_uid);
    r := entry(caller, the_uid, the_local, 'write', true);
    DELETE FROM resources WHERE uid = the_uid AND local = the_local;
    PERFORM hold(the_uid, '', -1, 0, -entry_bytes(r), NULL);
    UPDATE users SET usage_bytes = greatest(0, usage_bytes - r.newest_size) WHERE uid = the_uid AND r.newest_size > 0;
  END $$;

  -- Deletes at most \`rows_max\` files and folders of an account that is being removed. Returns whether there are more.
  CREATE FUNCTION delete_some(the_uid text, rows_max integer) RETURNS boolean LANGUAGE plpgsql AS $$
  DECLARE locals text[];
  BEGIN
    PERFORM lock_account(the_uid);
    locals := ARRAY(SELECT local FROM resources WHERE uid = the_uid LIMIT rows_max);
    -- The trigger of versions runs once for all files, and locks their blobs in order.
    DELETE FROM resources WHERE uid = the_uid AND local = ANY (locals);
    RETURN cardinality(locals) = rows_max;
  END $$;
`;

/**
 * Ordinary programs at work, as shell scripts that say themselves whether all is well: each runs in an empty folder of its
 * own, stops at the first failing command, and must pass on a plain directory exactly as on a mount.
 */
export interface ProgramScenario {
  readonly name: string;
  /** Debian programs without which it is skipped in words. */
  readonly needs: readonly string[];
  readonly script: string;
  readonly timeoutMs?: number;
}

/** 300,000 bytes that look random and are the same everywhere. */
const BYTES = `seq 1 60000 | sha512sum | cut -c1-64 | awk '{ for (i = 0; i < 4616; i++) printf "%s%d", $1, i }' | head -c 300000`;

/** `npm run soak -- programs` has 10,000 files and 500 commits. */
const FILES = Number(process.env.CFS_FILES ?? 400);
const COMMITS = Number(process.env.CFS_COMMITS ?? 20);
/** Of what takes as long as there are files. */
const LONG_MS = 120_000 + FILES * 60;
const PROJECT = new URL('../..', import.meta.url).pathname;
/** Packages from npm's cache, and from the registry what is not there. */
const WITH_REGISTRY = process.env.CFS_NPM_REGISTRY === '1';

/** FILES small files in 20 folders, all different. */
const TREE = `for d in $(seq 1 20); do mkdir -p tree/$d; for n in $(seq 1 ${FILES / 20}); do echo "file $n of $d" > tree/$d/f$n; done
      done`;

/** Some 3,000 files in 200 MiB, here and in a directory of the system. */
const PROJECT_PACKAGES: ProgramScenario = {
  name: 'npm ci of the packages of this project',
  needs: ['npm', 'diff', 'mktemp'],
  timeoutMs: LONG_MS,
  script: `
    other=$(mktemp -d); trap 'rm -rf "$other"' EXIT
    cp '${PROJECT}package.json' '${PROJECT}package-lock.json' '${PROJECT}.npmrc' .; cp package.json package-lock.json .npmrc "$other"
    for place in . "$other"; do (cd "$place" && npm ci --prefer-offline --ignore-scripts --silent && npm ls --all > /dev/null); done
    diff -r --no-dereference node_modules "$other/node_modules"
    node_modules/.bin/tsc --version | grep -q Version; echo 'let n: number = 1; export { n }' > n.ts; node_modules/.bin/tsc --ignoreConfig n.ts; test -s n.js
    rm -r node_modules`,
};

export const PROGRAM_SCENARIOS: readonly ProgramScenario[] = [
  {
    name: 'cp -r in, diff -r, cp -a within, mv, rm -r',
    needs: ['cp', 'diff', 'mv', 'rm'],
    script: `
      mkdir -p out/a/b 'out/with space' out/empty
      ${BYTES} > out/a/large
      printf small > out/a/b/small; : > out/zero; ln -s a/b/small out/link
      chmod 750 out/a/b; touch -d '2001-02-03 04:05:06.789012345' out/a/b/small
      cp -r out copy; diff -r --no-dereference out copy
      cp -a out exact; test "$(stat -c %y%a out/a/b/small)" = "$(stat -c %y%a exact/a/b/small)"
      mv copy/a moved; diff -r out/a moved; test ! -e copy/a
      mv moved exact/; diff -r out/a exact/moved
      rm -r exact copy; test ! -e exact
      test "$(ls -A | tr '\\n' ' ')" = 'out '`,
  },
  {
    name: 'mv across file systems, both ways',
    needs: ['mv', 'mktemp'],
    script: `
      other=$(mktemp -d); trap 'rm -rf "$other"' EXIT
      mkdir d; ${BYTES} > d/f; chmod 640 d/f; cp d/f "$other/kept"
      mv d "$other/d"; test ! -e d; cmp "$other/d/f" "$other/kept"
      mv "$other/d" back; cmp back/f "$other/kept"; test "$(stat -c %a back/f)" = 640`,
  },
  {
    name: 'vim saves: rewriting in place and through a new file, with and without a backup',
    needs: ['vim'],
    script: `
      edit() { vim -es -N -u NONE -i NONE "$@" -c 'wq' text; }
      printf 'old line\\nsecond\\n' > text; chmod 640 text
      edit -c 'set nobackup backupcopy=yes' -c '%s/old/yes/'; test "$(head -1 text)" = 'yes line'
      edit -c 'set nobackup backupcopy=no' -c '%s/yes/no/'; test "$(head -1 text)" = 'no line'
      edit -c 'set nobackup backupcopy=auto' -c '%s/no/auto/'; test "$(head -1 text)" = 'auto line'
      edit -c 'set backup backupcopy=no backupskip=' -c '%s/auto/kept/'; test "$(head -1 text)" = 'kept line'
      test "$(head -1 text~)" = 'auto line'; test "$(stat -c %a text)" = 640
      test "$(ls -A | tr '\\n' ' ')" = 'text text~ '`,
  },
  {
    name: 'ed saves',
    needs: ['ed'],
    script: `
      printf 'one\\ntwo\\n' > text
      printf '%s\\n' '2s/two/three/' 'a' 'four' '.' 'w' 'q' | ed -s text
      test "$(tr '\\n' ' ' < text)" = 'one three four '`,
  },
  {
    name: 'sed -i, sort -o, tee -a',
    needs: ['sed', 'sort', 'tee'],
    script: `
      seq 1 5000 > numbers
      sed -i 's/^42$/forty-two/' numbers; sed -i.bak 's/^43$/forty-three/' numbers
      grep -qx forty-two numbers; grep -qx forty-three numbers; grep -qx 43 numbers.bak
      sort -rn -o numbers numbers; test "$(head -1 numbers)" = 5000
      echo last | tee -a numbers > /dev/null; test "$(tail -1 numbers)" = last`,
  },
  {
    name: 'tar packs and unpacks links, modes and times',
    needs: ['tar', 'gzip'],
    script: `
      mkdir -p src/deep/er; ${BYTES} > src/deep/er/large; printf x > src/x; chmod 711 src/deep; chmod 600 src/x
      ln -s deep/er/large src/link; ln -s nowhere src/dangling
      touch -d '1999-12-31 23:59:59' src/x
      tar -czf all.tar.gz src; mkdir to; tar -xzpf all.tar.gz -C to
      diff -r --no-dereference src to/src; tar -df all.tar.gz -C to
      tar -cf - src | (mkdir pipe; tar -xf - -C pipe); diff -r --no-dereference src pipe/src
      tar -rf more.tar src/x; tar -uf more.tar src/x; tar -tf more.tar | grep -qx src/x`,
  },
  {
    name: 'cp -a, rsync -X, tar --xattrs and mv take user.* attributes along, within and across file systems',
    needs: ['setfattr', 'getfattr', 'cp', 'rsync', 'tar', 'mktemp'],
    script: `
      other=$(mktemp -d); trap 'rm -rf "$other"' EXIT
      told() { (cd "$1" && find . | sort | while read -r path; do getfattr -h -d -e hex -m - "$path"; done | grep -v '^# file' | sort); }
      mkdir -p from/sub; echo text > from/f; setfattr -n user.colour -v green from/f; setfattr -n user.mime_type -v text/plain from/f
      setfattr -n user.empty from/sub; setfattr -n user.bytes -v 0x00ff0a from/sub
      head -c 3000 /dev/zero | tr '\\0' x > value; setfattr -n user.long -v "$(cat value)" from/f
      told from > expected; test "$(grep -c ^user expected)" = 5
      cp -a from copied; told copied | cmp - expected; cp --preserve=xattr from/f alone; test "$(getfattr --only-values -n user.colour alone)" = green
      rsync -aX from/ synced/; told synced | cmp - expected; test -z "$(rsync -aXi from/ synced/)"
      setfattr -n user.colour -v blue from/f; rsync -aX from/ synced/; test "$(getfattr --only-values -n user.colour synced/f)" = blue
      setfattr -n user.colour -v green from/f
      tar --xattrs -cf all.tar from; mkdir to; tar --xattrs -xf all.tar -C to; told to/from | cmp - expected
      cp -a from "$other/copied"; told "$other/copied" | cmp - expected; cp -a "$other/copied" back; told back | cmp - expected
      rsync -aX from/ "$other/synced/"; told "$other/synced" | cmp - expected; tar --xattrs -xf all.tar -C "$other"; told "$other/from" | cmp - expected
      mv from "$other/moved"; told "$other/moved" | cmp - expected; mv "$other/moved" again; told again | cmp - expected
      setfattr -x user.long again/f; setfattr -x user.empty again/sub; test "$(told again | grep -c ^user)" = 3`,
  },
  {
    name: `git: ${COMMITS} commits, branches, merge, clone, gc, fsck, worktrees`,
    needs: ['git'],
    timeoutMs: 180_000,
    script: `
      export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
      git -c init.defaultBranch=main init -q repo; cd repo
      git config gc.auto 0
      for n in $(seq 1 ${COMMITS}); do
        mkdir -p "dir$((n % 5))"; seq 1 "$((n * 50))" > "dir$((n % 5))/file$n"; echo "$n" >> log
        git add -A; git commit -q -m "commit $n"
      done
      test "$(git rev-list --count HEAD)" = ${COMMITS}; test -z "$(git status --porcelain)"
      git checkout -q -b side HEAD~5; echo side > side; git add side; git commit -q -m side
      git checkout -q main; git merge -q -m merge side; test "$(cat side)" = side
      echo changed >> log; test "$(git status --porcelain)" = ' M log'; git stash -q; git stash pop -q; git checkout -q log
      git fsck --strict --no-progress
      git clone -q --no-local . ../clone; git -C ../clone fsck --strict --no-progress
      git clone -q --shared . ../shared; diff -r --exclude .git . ../clone
      git gc -q --prune=now; git fsck --strict --no-progress; test "$(git rev-list --count HEAD)" = ${COMMITS + 2}
      git worktree add -q ../tree HEAD~3; git -C ../tree status --porcelain; git worktree remove ../tree
      test -z "$(git status --porcelain)"`,
  },
  {
    name: 'sqlite3: rollback journal, vacuum, integrity',
    needs: ['sqlite3'],
    timeoutMs: 120_000,
    script: `
      sqlite3 db 'create table t(n integer primary key, s text); create index i on t(s);'
      for n in 1 2 3 4 5 6 7 8 9 10; do sqlite3 db "insert into t(s) values('row $n')"; done
      sqlite3 db "begin; with recursive c(n) as (select 1 union all select n + 1 from c where n < 5000) insert into t(s) select printf('%064d', n) from c; commit;"
      sqlite3 db 'begin; delete from t where n % 3 = 0; rollback;'
      sqlite3 db 'delete from t where n % 2 = 0; vacuum;'
      test "$(sqlite3 db 'select count(*) from t')" = 2505; test "$(sqlite3 db 'pragma integrity_check')" = ok
      test ! -e db-journal`,
  },
  {
    name: 'sqlite3: write-ahead log with a shared mapping, two processes',
    needs: ['sqlite3'],
    timeoutMs: 120_000,
    script: `
      test "$(sqlite3 db 'pragma journal_mode=wal')" = wal
      sqlite3 db 'create table t(who text, n integer);'
      for who in a b; do
        (for n in $(seq 1 20); do sqlite3 -cmd '.timeout 20000' db "insert into t values('$who', $n)"; done) &
      done; wait
      test "$(sqlite3 db 'select count(*) from t')" = 40; test "$(sqlite3 db 'pragma integrity_check')" = ok
      sqlite3 db 'pragma wal_checkpoint(truncate)' > /dev/null
      test "$(sqlite3 db 'select sum(n) from t')" = 420`,
  },
  {
    name: 'rsync -a twice: the second transfers nothing',
    needs: ['rsync'],
    script: `
      mkdir -p src/a/b src/empty; ${BYTES} > src/a/large; printf small > src/a/b/small; ln -s a/large src/link
      for n in $(seq 1 100); do echo "$n" > "src/a/b/f$n"; done; chmod 700 src/a/b
      rsync -a src/ to/; diff -r --no-dereference src to
      test -z "$(rsync -ai src/ to/)"
      echo more >> src/a/b/f7; rm src/a/b/f8
      test "$(rsync -ai --delete src/ to/ | grep -c -e f7 -e f8)" = 2; diff -r --no-dereference src to
      rsync -a --inplace --no-whole-file --checksum src/ to/; diff -r --no-dereference src to`,
  },
  {
    name: 'dd with seeks, skips and holes',
    needs: ['dd', 'cmp'],
    script: `
      other=$(mktemp -d); trap 'rm -rf "$other"' EXIT
      for d in . "$other"; do
        ${BYTES} > "$d/f"
        printf 'patched' | dd of="$d/f" bs=1 seek=131070 conv=notrunc status=none
        dd if="$d/f" of="$d/f" bs=4096 skip=3 seek=20 count=5 conv=notrunc status=none
        dd if=/dev/zero of="$d/f" bs=1000 seek=600 count=3 conv=notrunc status=none
        dd if="$d/f" of="$d/part" bs=1 skip=262100 count=777 status=none
        dd if="$d/f" of="$d/sync" bs=65536 conv=fsync status=none
        dd if="$d/f" of="$d/direct" bs=512 skip=1 status=none
      done
      for f in f part sync direct; do cmp "$f" "$other/$f"; done`,
  },
  {
    name: 'truncate, fallocate, cp --sparse, du',
    needs: ['truncate', 'fallocate', 'cp'],
    script: `
      ${BYTES} > f; cp f g; truncate -s 100000 f; truncate -s 250000 f
      head -c 100000 g | cmp - f -n 100000; test "$(tail -c 150000 f | tr -d '\\0' | wc -c)" = 0
      truncate -s -50000 f; test "$(stat -c %s f)" = 200000; truncate -s '%4096' f; test "$(stat -c %s f)" = 200704
      fallocate -p -o 8192 -l 40960 g; test "$(head -c 49152 g | tail -c 40960 | tr -d '\\0' | wc -c)" = 0
      truncate -s 50M sparse; cp --sparse=always sparse sparse2; cmp sparse sparse2; test "$(stat -c %s sparse2)" = 52428800; rm sparse sparse2`,
  },
  {
    name: 'ln -s, readlink, cd through links, find -L, dangling links',
    needs: ['ln', 'readlink', 'find'],
    script: `
      mkdir -p a/b; echo x > a/b/f; ln -s a/b short; ln -s ../b/f a/b/self; ln -s nowhere dangling
      test "$(cat short/f)" = x; test "$(cat a/b/self)" = x; test "$(readlink dangling)" = nowhere
      test ! -e dangling; test -L dangling; test "$(readlink -f short/f)" = "$(pwd -P)/a/b/f"
      (cd short && test "$(cat f)" = x); ln -sfn a short; test "$(readlink short)" = a
      test "$(find -L . -name f | wc -l)" -ge 2; rm dangling; test ! -L dangling`,
  },
  {
    name: '>> from several shells at once, and a log that is rotated',
    needs: ['wc', 'mv'],
    script: `
      for who in 1 2 3 4; do (for n in $(seq 1 50); do echo "$who $n" >> log; done) & done; wait
      test "$(wc -l < log)" = 200; test "$(sort -u log | wc -l)" = 200
      mv log log.1; echo new > log; mv log.1 log.2; mv log log.1; echo newer > log
      test "$(cat log log.1)" = "$(printf 'newer\\nnew')"; test "$(wc -l < log.2)" = 200
      cp log.2 copied; : > log.2; test "$(stat -c %s log.2)" = 0; test "$(wc -l < copied)" = 200`,
  },
  {
    name: 'programs run from here, scripts too (mapped for execution)',
    needs: ['cp'],
    script: `
      cp /bin/cat prog; printf 'hello' > f; test "$(./prog f)" = hello
      printf '#!/bin/sh\\necho script "$1"\\n' > s; chmod +x s; test "$(./s x)" = 'script x'
      chmod -x s; if ./s x 2> /dev/null; then exit 1; fi
      install -m 4711 f g; test "$(stat -c %a g)" = 4711`,
  },
  {
    name: 'cc compiles and links a small project here',
    needs: ['cc'],
    script: `
      printf 'int add(int a, int b) { return a + b; }\\n' > add.c
      printf '#include <stdio.h>\\nint add(int, int);\\nint main(void) { printf("%%d\\\\n", add(2, 3)); return 0; }\\n' > main.c
      cc -g -c add.c; cc -g -c main.c; cc -o sum add.o main.o; test "$(./sum)" = 5
      printf 'int add(int a, int b) { return a * b; }\\n' > add.c; cc -c add.c; cc -o sum add.o main.o; test "$(./sum)" = 6
      ar rcs lib.a add.o; cc -o sum2 main.o lib.a; test "$(./sum2)" = 6`,
  },
  {
    name: 'names in any script: created, found, moved and removed',
    needs: ['find', 'sort'],
    script: `
      for name in 'Ωμέγα' 'где' '文件' 'ファイル' '파일' 'שלום' 'مرحبا' 'फ़ाइल' '📁 🇩🇪' ' both ends ' '-rf' 'a&b<c>"d' "it's" '100%25' 'a:b*c?d|e' 'back\\slash' '#hash' '~tilde'; do
        printf '%s' "$name" > "./$name"; test "$(cat "./$name")" = "$name"; mkdir "./dir $name"; mv "./$name" "./dir $name/"
      done
      test "$(find . -type f | wc -l)" = 18; test "$(find . -mindepth 1 -type d | wc -l)" = 18
      find . -type f -print0 | while IFS= read -r -d '' f; do :; done 2> /dev/null || true
      for f in dir*/* dir*/.[!.]*; do if [ -e "$f" ]; then test "$(cat "$f")" = "$(basename "$f")"; fi; done`,
  },
  {
    name: 'touch, stat and find agree on times to the nanosecond',
    needs: ['touch', 'stat', 'find'],
    script: `
      touch -d '2001-02-03 04:05:06.123456789 UTC' old; touch new
      test "$(TZ=UTC stat -c %y old)" = '2001-02-03 04:05:06.123456789 +0000'
      test "$(find . -newer old -name new)" = ./new; test -z "$(find . -newer new -name old)"
      touch -r old new; test "$(stat -c %y old)" = "$(stat -c %y new)"
      touch -h -d '1980-01-01 UTC' new; test "$(TZ=UTC stat -c %y new | cut -c1-4)" = 1980`,
  },
  {
    name: 'gzip, split and cat bring the same bytes back',
    needs: ['gzip', 'split'],
    script: `
      ${BYTES} > f; cp f kept; gzip f; test ! -e f; gunzip f.gz; cmp f kept
      split -b 70000 f part.; cat part.* | cmp - f; rm part.*
      gzip -c f > f.gz; gunzip -c f.gz | cmp - kept`,
  },
  {
    name: 'flock(1) keeps two shells apart',
    needs: ['flock'],
    script: `
      echo 0 > n
      for who in 1 2 3; do (for k in 1 2 3 4 5 6 7 8 9 10; do flock lock sh -c 'echo $(($(cat n) + 1)) > n'; done) & done; wait
      test "$(cat n)" = 30`,
  },
  {
    name: 'eight finds beside a writer see every file whole',
    needs: ['find', 'grep'],
    script: `
      mkdir t; for n in $(seq 1 150); do echo "file $n" > "t/$n"; done
      for k in 1 2 3 4 5 6 7 8; do (for r in 1 2 3; do test "$(find t -type f -name '[0-9]*' | wc -l)" -ge 150; done) & pids="\${pids:-} $!"; done
      for n in $(seq 1 100); do echo "$n" > t/extra; mv t/extra "t/x$n"; done
      for pid in $pids; do wait "$pid"; done
      test "$(grep -rl '^file' t | wc -l)" = 150; test "$(ls t | wc -l)" = 250`,
  },
  {
    name: 'tail -f follows what is appended',
    needs: ['tail', 'timeout'],
    script: `
      : > log
      timeout 30 tail -f -n +1 log > /dev/null & tail=$!
      (timeout 30 tail -f -n +1 log | head -n 3 > seen) & reader=$!
      for n in 1 2 3; do echo "line $n" >> log; done
      for try in $(seq 1 100); do if [ "$(wc -l < seen)" = 3 ]; then break; fi; sleep 0.1; echo more >> log; done
      kill "$tail"; wait "$reader" || true; test "$(head -1 seen)" = 'line 1'`,
  },
  {
    name: 'a folder tree of 500 files is made, counted and removed by xargs',
    needs: ['xargs'],
    script: `
      for d in $(seq 1 10); do mkdir -p "t/$d"; seq 1 50 | (cd "t/$d" && xargs touch); done
      test "$(find t -type f | wc -l)" = 500; du -s t > /dev/null; df . > /dev/null; ls -lR t > /dev/null
      find t -type f -print0 | xargs -0 -n 50 -P 4 rm; test "$(find t -type f | wc -l)" = 0; rm -r t; test ! -e t`,
  },
  {
    name: `cp, tar, rsync and zip of ${FILES} files, and back`,
    needs: ['tar', 'rsync', 'zip', 'unzip', 'diff'],
    timeoutMs: LONG_MS,
    script: `
      ${TREE}; test "$(find tree -type f | wc -l)" = ${FILES}
      cp -r tree copied; diff -r tree copied; rm -r copied
      tar cf tree.tar tree; mkdir tarred; tar xf tree.tar -C tarred; diff -r tree tarred/tree; rm -r tarred
      rsync -a tree/ synced/; test -z "$(rsync -ai tree/ synced/)"; diff -r tree synced; rm -r synced
      zip -qr tree.zip tree; mkdir zipped; unzip -q tree.zip -d zipped; diff -r tree zipped/tree; rm -r zipped tree.tar tree.zip tree`,
  },
  {
    name: 'make of a C project: all of it, nothing, and what a change asks for',
    needs: ['make', 'cc'],
    timeoutMs: LONG_MS,
    script: `
      mkdir src; for n in $(seq 1 30); do printf '#include "all.h"\nint f%d(void) { return %d + ADD; }\n' "$n" "$n" > "src/f$n.c"; done
      printf '#define ADD 1\nint total(void);\n' > src/all.h
      { for n in $(seq 1 30); do echo "int f$n(void);"; done; echo 'int total(void) { int sum = 0;'
        for n in $(seq 1 30); do echo "sum += f$n();"; done; echo 'return sum; }'; } > src/total.c
      printf '#include <stdio.h>\n#include "all.h"\nint main(void) { printf("%%d\\\\n", total()); return 0; }\n' > src/main.c
      printf 'OBJECTS := $(patsubst src/%%.c,out/%%.o,$(wildcard src/*.c))\nprog: $(OBJECTS)\n\tcc -o $@ $^\nout/%%.o: src/%%.c src/all.h\n\t@mkdir -p out\n\tcc -c -o $@ $<\n' > Makefile
      make -j4 > first.log; test "$(./prog)" = 495; test "$(grep -c 'cc -c' first.log)" = 32
      make | grep -q 'up to date'
      printf '#include "all.h"\nint f7(void) { return 1000; }\n' > src/f7.c; make > second.log
      test "$(grep -c 'cc -c' second.log)" = 1; test "$(./prog)" = 1487
      sed -i 's/ADD 1/ADD 2/' src/all.h; make -j4 > third.log; test "$(grep -c 'cc -c' third.log)" = 32; test "$(./prog)" = 1516`,
  },
  {
    name: 'npm install of a tree of packages, with scripts and links in .bin',
    needs: ['npm'],
    timeoutMs: LONG_MS,
    script: `
      export npm_config_cache="$PWD/cache" npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
      for p in one two three; do
        mkdir -p "packages/$p/lib"; printf '#!/usr/bin/env node\nconsole.log("%s")\n' "$p" > "packages/$p/cli.js"
        for n in $(seq 1 20); do echo "module.exports = $n" > "packages/$p/lib/$n.js"; done
        printf '{"name":"@x/%s","version":"1.0.0","bin":{"%s":"cli.js"}}' "$p" "$p" > "packages/$p/package.json"
        (cd "packages/$p" && npm pack --silent --pack-destination ../.. > /dev/null)
      done
      mkdir app; cd app; printf '{"name":"app","version":"1.0.0","scripts":{"go":"one && two && three"}}' > package.json
      npm install --offline --silent ../x-one-1.0.0.tgz ../x-two-1.0.0.tgz ../x-three-1.0.0.tgz
      test "$(npm run --silent go | tr '\n' ' ')" = 'one two three '; test -L node_modules/.bin/one
      test "$(find node_modules -name '*.js' | wc -l)" = 63
      rm -r node_modules; npm ci --offline --silent; test "$(node -p 'require("@x/two/lib/7.js")')" = 7`,
  },
  ...(WITH_REGISTRY ? [PROJECT_PACKAGES] : []),
];

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { titled } from '../harness/requirement.ts';
import { missingUserModeLinux, runInUserModeLinux } from '../harness/user-mode-linux.ts';

// `--binding nfs` with the NFS client of a real Linux kernel: service, mount and programs run in user-mode Linux.

const DIST = process.env.CFS_TEST_DIST ?? new URL('../../dist/cli/', import.meta.url).pathname;
/** It takes a minute and a half on two processors with other work. */
const SCRIPT_MS_MAX = 480_000;
const missing = missingUserModeLinux();

/** Each step prints `NAME: RESULT`. */
const SCRIPT = `
export XDG_STATE_HOME=/run/state XDG_CONFIG_HOME=/run/config XDG_RUNTIME_DIR=/run/runtime TMPDIR=/run CFS_BINDING=nfs
mkdir -p /run/state /run/config /run/runtime /run/mnt
chmod 700 /run/runtime
cfs() { ${process.execPath} ${path.join(DIST, 'cfs.js')} "$@"; }
isMounted() { grep -q ' /run/mnt nfs ' /proc/mounts; }
cfs demo /run/mnt > /run/demo.log 2>&1 &
for second in $(seq 120); do isMounted && break; sleep 1; done
isMounted && echo "mounted: yes"

cd /run/mnt
head -c 3000000 /dev/urandom > /run/bytes
cp /run/bytes copy && cmp /run/bytes copy && echo "copied: same"
mkdir folder && echo 1 > folder/a && mv folder renamed && echo 2 > renamed/b && echo "renamed: $(ls renamed | tr '\\n' ' ')"
exec 5<> renamed/open
echo before >&5
rm renamed/open
echo after >&5
echo "removed while open: $(ls -A renamed | tr '\\n' ' ')"
exec 5>&-
mkdir many && (cd many && seq 1000 | xargs touch) && rm -r many && echo "removed: $(ls | grep -c many)"
su -s /bin/sh nobody -c 'ls /run/mnt' > /dev/null 2>&1 || echo "other user: refused"

cd /
cfs sync --wait
cfs refresh > /dev/null
echo "after sync: $(cmp /run/bytes /run/mnt/copy && echo same)"
before=$(sed -n 's/.*port=\\([0-9]*\\).*/\\1/p' /proc/mounts)
kill -9 $(cfs status | sed -n 's/.*(process \\([0-9]*\\)).*/\\1/p')
for second in $(seq 120); do isMounted || break; sleep 1; done
isMounted || echo "after SIGKILL: the mount is gone"
wait
cfs demo /run/mnt > /run/demo.log 2>&1 &
for second in $(seq 120); do isMounted && break; sleep 1; done
echo "mounted again: $(cmp /run/bytes /run/mnt/copy && echo same)"
cfs umount > /dev/null && echo "unmounted: yes"
isMounted || echo "after unmount: the mount is gone"
wait
cat /run/demo.log
`;

describe(titled('--binding nfs', missing), () => {
  let folder = '';
  let output = '';

  beforeAll(async () => {
    if (missing !== null) return;
    folder = mkdtempSync(path.join(tmpdir(), 'cfs-uml-'));
    ({ output } = await runInUserModeLinux(SCRIPT, folder, { timeoutMs: SCRIPT_MS_MAX }));
  }, SCRIPT_MS_MAX + 30_000);

  afterAll(() => {
    if (folder !== '') rmSync(folder, { recursive: true, force: true });
  });

  test.skipIf(missing !== null).each([
    ['mounts, and reads what it wrote', ['mounted: yes', 'copied: same']],
    ['keeps handles valid when their folder is renamed', ['renamed: a b ']],
    ['removes the name of an open file immediately, and leaves no .nfs file', ['removed while open: a b ']],
    ['removes a folder of 1,000 files', ['removed: 0']],
    ['refuses other users without --allow-other', ['other user: refused']],
    ['pushes what was written and closed', ['everything is with the service', 'after sync: same']],
    ['takes the mount away when its process is killed', ['after SIGKILL: the mount is gone']],
    ['has everything after the next mount', ['mounted again: same']],
    ['unmounts in order', ['unmounted: yes', 'after unmount: the mount is gone']],
  ])('%s', (_title, lines) => {
    for (const line of lines) expect(output).toContain(line);
  });
});

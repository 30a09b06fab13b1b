import { closeSync, fsyncSync, openSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

/** A mount that nothing uses costs a laptop next to nothing. [S-idle-1] */

const WINDOW_MS = 5_000;
const SECONDS_MIN = 4;
/** It is 1.5; with timers that run every second, 5. */
const WAKES_PER_S_MAX = 3;

let mount: MountFixture;

beforeEach(async () => {
  mount = await MountFixture.start({ flags: ['--dir-ttl', '24h'] }); // else the folder in use is refreshed (S-fresh-5)
});

afterEach(() => mount.dispose());

/** How often the threads of the mount went to sleep so far (proc(5)): as often as they woke. */
function sleeps(): number {
  return readdirSync(`/proc/${mount.pid}/task`)
    .map((tid) => readFileSync(`/proc/${mount.pid}/task/${tid}/status`, 'latin1'))
    .reduce((sum, status) => sum + Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)?.[1]), 0);
}

function writtenBytes(): number {
  return Number(/^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${mount.pid}/io`, 'latin1'))?.[1]);
}

/** After this, a read of LMDB by the mount counts as a write: it changes a page of this file. The kernel would write it after 30 s. */
function writeLockFile(): void {
  const open = readdirSync(`/proc/${mount.pid}/fd`).map((fd) => readlinkSync(`/proc/${mount.pid}/fd/${fd}`));
  const fd = openSync(open.find((path) => path.endsWith('/lock.mdb')) as string, 'r');
  fsyncSync(fd);
  closeSync(fd);
}

test('an idle mount wakes about once a second, and writes nothing', { timeout: 300_000 }, async () => {
  await mount.run('echo text > file && cat file && ls -l');
  await mount.sync();

  // The first windows hold what a start leaves to do later. Each one lies between two attempts.
  let last = { sleeps: sleeps(), written: writtenBytes(), atMs: performance.now() };
  await vi.waitFor(
    () => {
      const now = { sleeps: sleeps(), written: writtenBytes(), atMs: performance.now() };
      const seconds = (now.atMs - last.atMs) / 1000;
      const window = { written: now.written - last.written, wakes: now.sleeps - last.sleeps, seconds };
      writeLockFile();
      last = now;
      expect(seconds).toBeGreaterThan(SECONDS_MIN);
      expect(window.written).toBe(0);
      expect(window.wakes / seconds).toBeLessThan(WAKES_PER_S_MAX);
    },
    { timeout: 240_000, interval: WINDOW_MS },
  );
});

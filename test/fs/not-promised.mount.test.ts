import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { O_CREAT, O_RDWR } from '../conformance/file-api.ts';
import { fails } from '../conformance/workplace.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';

/** What docs/semantics.md does not promise, where it takes a kernel to see it. */

const FS_IMMUTABLE_FL = 0x10;
const isOverlayKnown = readFileSync('/proc/filesystems', 'latin1').includes('\toverlay\n');
const missingForOverlay = process.getuid?.() !== 0 ? 'root' : isOverlayKnown ? null : 'overlayfs';

const missing = missingForMounts();
describe.skipIf(missing !== null)(`not promised${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start();
  });
  afterAll(() => mount?.dispose());

  test('chattr and lsattr are refused: ENOTTY', async () => {
    const api = await SyscallProcess.start(mount.directory);
    const fd = await api.open('file', O_RDWR | O_CREAT);

    await fails('ENOTTY', api.process.getFlags(fd));
    await fails('ENOTTY', api.process.setFlags(fd, FS_IMMUTABLE_FL));
    await api.dispose();
  });

  test.skipIf(missingForOverlay !== null)(
    `a folder of the mount cannot be the upper layer of an overlayfs, but can be a lower one${missingForOverlay === null ? '' : ` (needs: ${missingForOverlay})`}`,
    async () => {
      const { stdout } = await mount.run(
        `mkdir here upper work
         printf lower > here/file
         local=$(mktemp -d)
         mkdir "$local/upper" "$local/work" "$local/shown"
         unshare --mount sh -c '
           local=$1
           mount -t overlay none -o lowerdir="$local",upperdir=upper,workdir=work "$local/shown" 2> "$local/said" || echo refused
           grep -o "wrong fs type" "$local/said"
           mount -t overlay none -o lowerdir=here,upperdir="$local/upper",workdir="$local/work" "$local/shown"
           cat "$local/shown/file"
         ' sh "$local"
         rm -r "$local"`,
      );

      expect(stdout).toBe('refused\nwrong fs type\nlower');
    },
  );
});

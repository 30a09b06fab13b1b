import { accessSync, constants } from 'node:fs';
import { UsageError } from '../base/errors.ts';
import { type Fusermount, findFusermount, whyNoFusermount } from '../kernel/fusermount.ts';
import { exitCode } from './exit-codes.ts';

/**
 * @param whoMounts uid of this process, and the fusermount3 that it would run
 * @throws UsageError (noFuse) when no mount is possible on this system, saying what to install or load.
 */
export function checkFuse(
  whoMounts: { readonly uid: number; readonly fusermount: Fusermount | null } = {
    uid: process.geteuid?.() ?? 0,
    fusermount: findFusermount(),
  },
  platform: NodeJS.Platform = process.platform,
): void {
  const refuse = (sentence: string): never => {
    throw new UsageError(sentence, exitCode('noFuse'));
  };
  if (platform === 'darwin')
    refuse('this program has no FUSE on macOS: leave --binding out, and the mount uses NFS (experimental)');
  try {
    accessSync('/dev/fuse', constants.R_OK | constants.W_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT')
      refuse('there is no /dev/fuse here: load the module (modprobe fuse), or give the container the device');
    refuse(`/dev/fuse cannot be opened (${code})`);
  }
  const why = whoMounts.uid === 0 ? null : whyNoFusermount(whoMounts.fusermount);
  if (why !== null) refuse(why);
}

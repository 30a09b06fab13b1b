import { type ChildProcess, spawn } from 'node:child_process';
import { programPath } from '../kernel/fusermount.ts';

/** A line on the standard input of the guard: the mount ended in order. */
const ENDED = 'ended\n';

/**
 * Takes the mount away by force when its process has ended. Only the mount with our own source is removed: by then, another may be on the
 * directory. `umount` on Linux detaches a mount in use with `-l`, on macOS with `-f`.
 */
const GUARD = `
if read -r _; then exit 0; fi
if mount | grep -F -q -- "$2 on "; then
  if [ "$(uname)" = Darwin ]; then umount -f "$1"; else umount -i -f -l --no-canonicalize -- "$1"; fi
fi
`;

/**
 * A child process that outlives this one for a moment. It holds the listening socket until the mount is gone: no other process can bind the
 * port while a kernel still sends requests there.
 */
export class MountGuard {
  readonly #child: ChildProcess;

  /** @param listening the descriptor of the listening socket; -1: unknown */
  constructor(mount: { readonly directory: string; readonly source: string }, listening: number) {
    this.#child = spawn('/bin/sh', ['-c', GUARD, 'cfs-mount-guard', mount.directory, mount.source], {
      detached: true, // not in our process group, which Ctrl-C reaches
      cwd: '/',
      stdio: ['pipe', 'ignore', 'ignore', ...(listening < 0 ? [] : [listening])],
      env: { PATH: programPath(), LC_ALL: 'C' },
    });
    this.#child.on('error', () => {});
    this.#child.stdin?.on('error', () => {});
    this.#child.unref();
  }

  /** The mount ended in order. */
  dismiss(): void {
    this.#child.stdin?.end(ENDED);
  }
}

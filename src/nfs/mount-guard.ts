import { type ChildProcess, spawn } from 'node:child_process';
import { programPath } from '../kernel/fusermount.ts';
import {
  type ContinuedMount,
  continuedEnvironment,
  SERVED_DESCRIPTOR,
  type Successor,
  writeContinuedMount,
} from './continued-mount.ts';
import { forcedUmount } from './system-mount.ts';

/** A line on the standard input of the guard: the mount ended in order. */
const ENDED = 'ended\n';
/** So many successors in a row that die before they have served for a second end the mount: the next one would die as well. */
const FAILED_MAX = 5;

/**
 * $1: the directory, $2: the source, $3: the options of umount(8); then the program that continues the mount, if any. The first line of standard
 * input is the state for it.
 *
 * Each successor inherits the listening socket as descriptor 3, and a pipe as descriptor 4. Without a successor, and after too many failed ones,
 * the mount is taken away by force. Only the mount with our own source is removed: by then, another may be on the directory.
 */
const GUARD = `
directory=$1 source=$2 options=$3
shift 3
IFS= read -r state || exit 0
if read -r _; then exit 0; fi
isMounted() { mount | grep -F -q -- "$source on "; }
failed=0
while [ $# -gt 0 ] && isMounted && [ $failed -lt ${FAILED_MAX} ]; do
  said=$(printf '%s\\n' "$state" | "$@" ${SERVED_DESCRIPTOR}>&1 >/dev/null)
  if [ -n "$said" ]; then failed=0; else failed=$((failed + 1)); fi
done
if isMounted; then umount $options "$directory"; fi
`;

/**
 * A child process that outlives this one. It holds the listening socket while the mount exists: no other process can bind the port while a
 * kernel sends requests there. When this process has died, it starts a successor, which continues the mount.
 */
export class MountGuard {
  readonly #child: ChildProcess;

  /**
   * @param listening the descriptor of the listening socket; -1: unknown
   * @param successor null: the death of this process ends the mount
   */
  constructor(
    mount: ContinuedMount & { readonly directory: string; readonly source: string },
    listening: number,
    successor: Successor | null,
  ) {
    const isContinued = successor !== null && listening >= 0;
    const words = [
      'cfs-mount-guard',
      mount.directory,
      mount.source,
      forcedUmount().join(' '),
      ...(isContinued ? successor.command : []),
    ];
    this.#child = spawn('/bin/sh', ['-c', GUARD, ...words], {
      detached: true, // not in our process group, which Ctrl-C reaches
      cwd: '/',
      stdio: ['pipe', 'ignore', 'ignore', ...(listening < 0 ? [] : [listening])],
      env: { ...(isContinued && continuedEnvironment(successor.env)), PATH: programPath() },
    });
    this.#child.on('error', () => {});
    this.#child.stdin?.on('error', () => {});
    this.#child.stdin?.write(writeContinuedMount(mount));
    this.#child.unref();
  }

  /** The mount ended in order. */
  dismiss(): void {
    this.#child.stdin?.end(ENDED);
  }
}

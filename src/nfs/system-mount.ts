import { spawn } from 'node:child_process';
import { UsageError } from '../base/errors.ts';
import type { MountOptions } from '../kernel/binding.ts';
import { programPath } from '../kernel/fusermount.ts';
import { MOUNT_REFUSAL } from '../kernel/mount-refusal.ts';
import { TRANSFER_BYTES_MAX } from './protocol.ts';

/** The commands that mount an NFS export on this system. */

export const HOST = '127.0.0.1';
const MOUNT_MS_MAX = 30_000;

export interface Command {
  readonly program: string;
  readonly args: readonly string[];
}

export interface Export {
  readonly path: string;
  readonly port: number;
}

/** The path of an export. It names the port, so that the mount table shows of each mount which port serves it. */
export function exportedPath(port: number, secret: string): string {
  return `/cfs-mount-${port}-${secret}`;
}

/** The source of the mount in the mount table. */
export function sourceOf({ path }: Pick<Export, 'path'>): string {
  return `${HOST}:${path}`;
}

/** The path of the export, by the source in the mount table. */
export function pathOf(source: string): string {
  return source.slice(HOST.length + 1);
}

/** The port of a mount of ours, by its source in the mount table; null for the mount of another program. */
export function portOf(source: string): number | null {
  const [, port] = /^127\.0\.0\.1:\/cfs-mount-(\d{1,5})-[0-9a-f]+$/.exec(source) ?? [];
  return port === undefined ? null : Number(port);
}

/** @throws UsageError (noFuse) when this system cannot mount NFS for this user, with the fix */
export function checkNfs(uid: number = process.geteuid?.() ?? 0, platform: NodeJS.Platform = process.platform): void {
  if (platform === 'darwin' || uid === 0) return;
  throw new UsageError(
    '--binding nfs needs root on Linux, where it is meant for tests: leave the option out, and the mount uses FUSE',
    MOUNT_REFUSAL.noFuse,
  );
}

/** The command that mounts the export. */
export function mountCommand(
  exported: Export,
  options: Pick<MountOptions, 'directory' | 'readOnly' | 'flags'>,
  platform: NodeJS.Platform = process.platform,
): Command {
  const isDarwin = platform === 'darwin';
  const words = [
    ...(isDarwin ? DARWIN_WORDS : LINUX_WORDS),
    `port=${exported.port}`,
    `mountport=${exported.port}`,
    ...(options.readOnly ? [isDarwin ? 'rdonly' : 'ro'] : []),
    ...options.flags.filter((flag) => flag !== 'ro' && flag !== 'rw'),
  ].join(',');
  const target = [sourceOf(exported), options.directory];
  return isDarwin
    ? { program: 'mount_nfs', args: ['-o', words, ...target] }
    : // Without the helper mount.nfs: mount(2) itself asks for the root, and nfs-common need not be installed.
      { program: 'mount', args: ['-i', '-t', 'nfs', '-o', words, ...target] };
}

/**
 * nfs(5). `actimeo=1`: changes by the service are seen within a second, because an NFS server cannot notify its client. `nolock`: locks are kept
 * by the client's kernel. `nosharecache`: a later mount is another file system.
 */
const LINUX_WORDS: readonly string[] = [
  ...['vers=3', 'proto=tcp', 'mountproto=tcp', `addr=${HOST}`, `mountaddr=${HOST}`, 'nolock', 'hard', 'timeo=600'],
  ...[
    'actimeo=1',
    'lookupcache=positive',
    'nosharecache',
    `rsize=${TRANSFER_BYTES_MAX}`,
    `wsize=${TRANSFER_BYTES_MAX}`,
  ],
];

/**
 * mount_nfs(8). `locallocks`: office programs open a file without locks read-only. `nfc`: names are sent composed. `readahead=4`: a glance at
 * the head of a picture fetches little of it. `intr` and `deadtimeout`: a dead mount can be left. `mutejukebox`: a slow service is no dialog.
 */
const DARWIN_WORDS: readonly string[] = [
  ...['vers=3', 'tcp', 'locallocks', 'nfc', 'nonegnamecache', 'actimeo=1', 'intr', 'deadtimeout=60', 'mutejukebox'],
  ...['noquota', 'rsize=65536', 'wsize=65536', 'readahead=4'],
];

/**
 * The options of umount(8) that take away a mount without a server, in use or not. With `-f`, programs that wait for the server get an error;
 * Linux detaches a mount in use with `-l`, macOS with `-f`.
 */
export function forcedUmount(platform: NodeJS.Platform = process.platform): readonly string[] {
  return platform === 'darwin' ? ['-f'] : ['-i', '-f', '-l', '--no-canonicalize', '--'];
}

/** Runs the command. The calling thread serves the mount meanwhile. @throws UsageError (noFuse) with what the command printed */
export function runMount({ program, args }: Command, directory: string): Promise<void> {
  const refuse = (why: string): UsageError =>
    new UsageError(`could not mount on ${directory}: ${why}`, MOUNT_REFUSAL.noFuse);
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: programPath(), LC_ALL: 'C' },
      timeout: MOUNT_MS_MAX,
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    child.on('error', (error: NodeJS.ErrnoException) => reject(refuse(`${program} cannot be started: ${error.code}`)));
    child.on('close', (code) => {
      if (code === 0) resolve();
      else reject(refuse(said.trim() === '' ? `${program} failed` : said.trim()));
    });
  });
}

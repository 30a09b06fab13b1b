import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { programPath } from '../kernel/fusermount.ts';
import type { MountEntry } from '../kernel/mount-table.ts';
import { forcedUmount, portOf } from './system-mount.ts';

/**
 * NFS mounts whose process and guard are both dead. The client waits for its server permanently, so nothing here accesses the mounted directory.
 */

const CONNECT_MS_MAX = 3_000;
const UMOUNT_MS_MAX = 30_000;

/** Whether an NFS mount is one of ours, alive or dead. */
export function isOurNfs({ type, source }: MountEntry): boolean {
  return type === 'nfs' && portOf(source) !== null;
}

/**
 * Whether a process holds the port of a mount of ours: the mounting process or its guard. Only a refused connection means that there is none. A
 * process that is stopped still has the port, and so has another program that bound it since.
 */
export function hasServer({ source }: MountEntry): Promise<boolean> {
  const port = portOf(source);
  if (port === null) return Promise.resolve(true);
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', timeout: CONNECT_MS_MAX });
    const done = (isHeld: boolean): void => {
      socket.destroy();
      resolve(isHeld);
    };
    socket.once('connect', () => done(true));
    socket.once('timeout', () => done(true));
    socket.once('error', ({ code }: NodeJS.ErrnoException) => done(code !== 'ECONNREFUSED'));
  });
}

/** Takes an NFS mount away without its server. @returns null if it is gone, otherwise what umount(8) said */
export function removeNfsMount(directory: string): Promise<string | null> {
  return new Promise((resolve) => {
    const child = spawn('umount', [...forcedUmount(), directory], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: programPath(), LC_ALL: 'C' },
      timeout: UMOUNT_MS_MAX,
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    child.once('error', ({ code }: NodeJS.ErrnoException) => resolve(`umount cannot be started: ${code}`));
    child.once('close', (code) => resolve(code === 0 ? null : said.trim().split('\n')[0] || 'umount failed'));
  });
}

/** The command that takes an NFS mount away, for a message. */
export function removalOfNfs(shown: string, platform: NodeJS.Platform = process.platform): string {
  return platform === 'darwin' ? `umount -f ${shown}` : `umount -f -l ${shown}, as root,`;
}

import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { programPath } from '../kernel/fusermount.ts';
import type { MountEntry } from '../kernel/mount-table.ts';
import { MOUNT_PROCEDURE } from './mount-program.ts';
import { MOUNT_PROGRAM, VERSION } from './protocol.ts';
import { LAST_FRAGMENT, RecordReader } from './record-reader.ts';
import { callHeader } from './rpc-message.ts';
import { forcedUmount, HOST, pathOf, portOf } from './system-mount.ts';
import { XdrWriter } from './xdr.ts';

/**
 * NFS mounts whose process and guard are both dead. The client waits for its server permanently, so nothing here accesses the mounted directory.
 */

const ANSWER_MS_MAX = 3_000;
/** More than a list with one mount. */
const ANSWER_BYTES_MAX = 4_096;
const UMOUNT_MS_MAX = 30_000;

/** Whether an NFS mount is one of ours, alive or dead. */
export function isOurNfs({ type, source }: MountEntry): boolean {
  return type === 'nfs' && portOf(source) !== null;
}

/**
 * Whether the mounting process or its guard may still hold the port of a mount of ours. There is none if the connection is refused, or if another
 * program has bound the port since: its reply to DUMP does not name the mount. Silence proves nothing, because a stopped process and the guard
 * are silent. Neither does a closed connection: a server with too many of them closes each further one.
 */
export function hasServer({ source }: MountEntry, answerMsMax = ANSWER_MS_MAX): Promise<boolean> {
  const port = portOf(source);
  if (port === null) return Promise.resolve(true);
  return new Promise((resolve) => {
    const socket = connect({ port, host: HOST, timeout: answerMsMax });
    const done = (mayExist: boolean): void => {
      socket.destroy();
      resolve(mayExist);
    };
    const onRecord = (reply: Buffer): void => done(reply.includes(pathOf(source)));
    const replies = new RecordReader({ bytesMax: ANSWER_BYTES_MAX, onRecord });
    const call = callHeader(1, MOUNT_PROGRAM, VERSION, MOUNT_PROCEDURE.dump).done();
    socket.once('connect', () =>
      socket.write(
        new XdrWriter()
          .u32(LAST_FRAGMENT + call.byteLength)
          .fixed(call)
          .done(),
      ),
    );
    socket.on('data', (chunk) => {
      try {
        replies.push(chunk);
      } catch {
        done(false); // no RPC
      }
    });
    socket.once('timeout', () => done(true));
    socket.once('end', () => done(true));
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

import { closeSync, constants, openSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** sun_path of unix(7) has 108 bytes, one of them for the final NUL. */
const SOCKET_PATH_BYTES_MAX = 107;

/**
 * A socket path for bind(2) and connect(2). Call `release` after the bound socket is closed, or the connection is made.
 */
export interface SocketAddress {
  readonly address: string;
  release(): void;
}

/**
 * A socket address for a path of any length: a long path is reached through an open descriptor of its directory.
 *
 * @throws NodeJS.ErrnoException ENOENT, EACCES if the directory cannot be opened
 */
export function socketAddress(path: string): SocketAddress {
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX) return { address: path, release: () => {} };
  const fd = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  let open = true;
  return {
    address: join(`/proc/self/fd/${fd}`, basename(path)),
    release: () => {
      if (open) closeSync(fd);
      open = false;
    },
  };
}

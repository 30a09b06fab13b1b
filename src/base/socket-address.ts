import { closeSync, constants, openSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** sun_path of unix(7) has 108 bytes, one of them for the final NUL. */
const SOCKET_PATH_BYTES_MAX = 107;

/** A socket path as bind(2) and connect(2) take it. `release` when the socket is closed (bound) or connected. */
export interface SocketAddress {
  readonly address: string;
  release(): void;
}

/**
 * A path of any length as a socket address: one that is too long is reached through an open descriptor of its directory.
 *
 * @throws NodeJS.ErrnoException ENOENT, EACCES where the directory cannot be opened
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

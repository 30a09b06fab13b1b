import { randomBytes } from 'node:crypto';
import { ROOT_INODE } from '../base/vocabulary.ts';
import type { FileHandles } from './file-handles.ts';
import { MOUNT_PROGRAM, PATH_BYTES_MAX, VERSION } from './protocol.ts';
import type { RpcCall } from './rpc-message.ts';
import type { RpcBody, RpcProgram } from './rpc-server.ts';
import { exportedPath } from './system-mount.ts';
import { XdrWriter } from './xdr.ts';

/** The procedures of the MOUNT protocol (RFC 1813, appendix I). */
const PROCEDURE = { null: 0, mnt: 1, dump: 2, umnt: 3, umntall: 4, export: 5 } as const;
const OK = 0;
const ERR_ACCES = 13;
const AUTH_SYS = 1;
const SECRET_BYTES = 16;

/**
 * Gives out the handle of the root, once, to the caller that names a secret path. Any local user can connect to the port and claim any uid, so
 * nothing else identifies our own mount command.
 */
export class MountProgram implements RpcProgram {
  readonly number = MOUNT_PROGRAM;
  readonly version = VERSION;
  readonly #handles: FileHandles;
  /** The exported path; null while no MNT succeeds. */
  #path: string | null = null;

  constructor(handles: FileHandles) {
    this.#handles = handles;
  }

  /** From now on one MNT succeeds. A mount that is continued never opens: its handle was given out by an earlier process. @returns the path */
  open(port: number): string {
    this.#path = exportedPath(port, randomBytes(SECRET_BYTES).toString('hex'));
    return this.#path;
  }

  /** From now on no MNT succeeds. */
  close(): void {
    this.#path = null;
  }

  call({ procedure, args }: RpcCall): RpcBody | null {
    const out = new XdrWriter();
    switch (procedure) {
      case PROCEDURE.null:
      case PROCEDURE.umntall:
        break;
      case PROCEDURE.umnt:
        args.opaque(PATH_BYTES_MAX);
        break;
      case PROCEDURE.mnt:
        this.#mount(args.opaque(PATH_BYTES_MAX).toString('latin1'), out);
        break;
      case PROCEDURE.dump:
      case PROCEDURE.export:
        out.bool(false); // an empty list
        break;
      default:
        return null;
    }
    return [out.done()];
  }

  #mount(path: string, out: XdrWriter): void {
    if (path !== this.#path) {
      out.u32(ERR_ACCES);
      return;
    }
    this.close();
    out.u32(OK);
    this.#handles.write(out, ROOT_INODE);
    out.u32(1).u32(AUTH_SYS);
  }
}

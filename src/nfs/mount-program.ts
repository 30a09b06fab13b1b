import { randomBytes } from 'node:crypto';
import { ROOT_INODE } from '../base/vocabulary.ts';
import type { FileHandles } from './file-handles.ts';
import { MOUNT_PROGRAM, PATH_BYTES_MAX, VERSION } from './protocol.ts';
import type { RpcCall } from './rpc-message.ts';
import type { RpcBody, RpcProgram } from './rpc-server.ts';
import { exportedPath, HOST } from './system-mount.ts';
import { XdrWriter } from './xdr.ts';

/** The procedures of the MOUNT protocol (RFC 1813, appendix I). */
export const MOUNT_PROCEDURE = { null: 0, mnt: 1, dump: 2, umnt: 3, umntall: 4, export: 5 } as const;
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
  /** The exported path. */
  #path: string | null;
  #isOpen = false;

  /** @param path of a mount that is continued: it never opens, because an earlier process gave its handle out */
  constructor(handles: FileHandles, path: string | null = null) {
    this.#handles = handles;
    this.#path = path;
  }

  /** From now on one MNT succeeds. @returns the path */
  open(port: number): string {
    this.#path = exportedPath(port, randomBytes(SECRET_BYTES).toString('hex'));
    this.#isOpen = true;
    return this.#path;
  }

  /** From now on no MNT succeeds. */
  close(): void {
    this.#isOpen = false;
  }

  call({ procedure, args }: RpcCall): RpcBody | null {
    const out = new XdrWriter();
    switch (procedure) {
      case MOUNT_PROCEDURE.null:
      case MOUNT_PROCEDURE.umntall:
        break;
      case MOUNT_PROCEDURE.umnt:
        args.opaque(PATH_BYTES_MAX);
        break;
      case MOUNT_PROCEDURE.mnt:
        this.#mount(args.opaque(PATH_BYTES_MAX).toString('latin1'), out);
        break;
      case MOUNT_PROCEDURE.dump:
        this.#dump(out);
        break;
      case MOUNT_PROCEDURE.export:
        out.bool(false); // an empty list
        break;
      default:
        return null;
    }
    return [out.done()];
  }

  /** The path of the mount, which every user finds in the mount table. It is a secret until the root's handle was given out. */
  #dump(out: XdrWriter): void {
    if (this.#path !== null && !this.#isOpen) out.bool(true).text(HOST).text(this.#path);
    out.bool(false);
  }

  #mount(path: string, out: XdrWriter): void {
    if (!this.#isOpen || path !== this.#path) {
      out.u32(ERR_ACCES);
      return;
    }
    this.close();
    out.u32(OK);
    this.#handles.write(out, ROOT_INODE);
    out.u32(1).u32(AUTH_SYS);
  }
}

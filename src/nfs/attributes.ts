import type { Timespec } from '../base/vocabulary.ts';
import type { AttributeChange, Attributes } from '../kernel/binding.ts';
import { FILE_TYPE } from './protocol.ts';
import { setU64, XdrError, type XdrReader, type XdrWriter } from './xdr.ts';

/** Attributes in the structures of NFS version 3 (RFC 1813, section 2.6). */

const FILE_SYSTEM_ID = 1;
const SECONDS_MAX = 0xffff_ffff;
/** Permission bits with setuid, setgid and sticky. */
const MODE_BITS = 0o7777;
const BLOCK_BYTES = 512;
/** time_how */
const DO_NOT_CHANGE = 0;
const TO_SERVER_TIME = 1;
const TO_CLIENT_TIME = 2;

const TIME_BYTES = 8;

/** The encoded length of fattr3. */
export const ATTRIBUTE_BYTES = 84;

/** fattr3. A client takes a file without links for one that no longer exists (ESTALE), although a program has it open: at least one link. */
export function writeAttributes(out: XdrWriter, attributes: Attributes): void {
  const { kind, mode, nlink, uid, gid, sizeBytes, blocks512, ino, atime, mtime, ctime } = attributes;
  // Without a call for each item: a listing writes thousands of attributes, the first ones before V8 compiles.
  const at = out.room(ATTRIBUTE_BYTES);
  const { view } = out;
  view.setUint32(at, FILE_TYPE[kind]);
  view.setUint32(at + 4, mode);
  view.setUint32(at + 8, nlink > 0 ? nlink : 1);
  view.setUint32(at + 12, uid);
  view.setUint32(at + 16, gid);
  setU64(view, at + 20, sizeBytes);
  setU64(view, at + 28, blocks512 * BLOCK_BYTES);
  setU64(view, at + 36, 0); // rdev: devices are refused
  setU64(view, at + 44, FILE_SYSTEM_ID);
  setU64(view, at + 52, ino);
  setTime(view, at + 60, atime);
  setTime(view, at + 68, mtime);
  setTime(view, at + 76, ctime);
}

/** post_op_attr */
export function writeMaybeAttributes(out: XdrWriter, attributes: Attributes | null): void {
  out.bool(attributes !== null);
  if (attributes !== null) writeAttributes(out, attributes);
}

/**
 * wcc_data. A client keeps its caches if `before` is what it knows, so `before` must be null unless nothing else could change the node between
 * the two.
 */
export function writeWcc(out: XdrWriter, before: Attributes | null, after: Attributes | null): void {
  out.bool(before !== null);
  if (before !== null) {
    out.u64(before.sizeBytes);
    writeTime(out, before.mtime);
    writeTime(out, before.ctime);
  }
  writeMaybeAttributes(out, after);
}

/** sattr3 */
export function readChange(args: XdrReader): AttributeChange {
  const mode = args.bool() ? args.u32() & MODE_BITS : undefined;
  const uid = args.bool() ? args.u32() : undefined;
  const gid = args.bool() ? args.u32() : undefined;
  const sizeBytes = args.bool() ? args.u64() : undefined;
  const atime = readTimeChange(args);
  const mtime = readTimeChange(args);
  return {
    ...(mode !== undefined && { mode }),
    ...(uid !== undefined && { uid }),
    ...(gid !== undefined && { gid }),
    ...(sizeBytes !== undefined && { sizeBytes }),
    ...(atime !== undefined && { atime }),
    ...(mtime !== undefined && { mtime }),
  };
}

/** nfstime3 */
export function readTime(args: XdrReader): Timespec {
  const sec = args.u32();
  const nsec = args.u32();
  if (nsec > 999_999_999) throw new XdrError(`${nsec} nanoseconds`);
  return { sec, nsec };
}

/** The time as the protocol can express it: 32 bits of seconds, without a sign. */
export function expressible({ sec, nsec }: Timespec): Timespec {
  if (sec < 0) return { sec: 0, nsec: 0 };
  return sec > SECONDS_MAX ? { sec: SECONDS_MAX, nsec: 999_999_999 } : { sec, nsec };
}

function writeTime(out: XdrWriter, time: Timespec): void {
  const at = out.room(TIME_BYTES);
  setTime(out.view, at, time);
}

function setTime(view: DataView, at: number, time: Timespec): void {
  const { sec, nsec } = time.sec >= 0 && time.sec <= SECONDS_MAX ? time : expressible(time);
  view.setUint32(at, sec);
  view.setUint32(at + 4, nsec);
}

function readTimeChange(args: XdrReader): Timespec | 'now' | undefined {
  const how = args.u32();
  if (how === DO_NOT_CHANGE) return undefined;
  if (how === TO_SERVER_TIME) return 'now';
  if (how === TO_CLIENT_TIME) return readTime(args);
  throw new XdrError(`${how} is no time_how`);
}

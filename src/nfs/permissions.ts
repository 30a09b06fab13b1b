import { FsError } from '../base/errors.ts';
import type { AttributeChange, Attributes } from '../kernel/binding.ts';
import type { RpcCaller } from './rpc-message.ts';

/**
 * The checks that the kernel makes for FUSE (`default_permissions`) and that an NFS server makes itself. Pure functions. The rules are those of
 * Linux (fs/namei.c, fs/attr.c); the owner of a file may read and write it whatever its bits say, because NFS has no open(2) (nfsd_permission).
 */

export const MAY_READ = 4;
export const MAY_WRITE = 2;
export const MAY_EXECUTE = 1;

const ANY_EXECUTE = 0o111;
const STICKY = 0o1000;
const SET_UID = 0o4000;
const SET_GID = 0o2000;
const GROUP_EXECUTE = 0o010;

export function isInGroup(caller: RpcCaller, gid: number): boolean {
  return caller.gid === gid || caller.gids.includes(gid);
}

/** Whether the permission bits grant all of `wanted`. */
export function isGranted(attributes: Attributes, caller: RpcCaller, wanted: number): boolean {
  const { mode, uid, gid, kind } = attributes;
  if (caller.uid === 0) return (wanted & MAY_EXECUTE) === 0 || kind === 'folder' || (mode & ANY_EXECUTE) !== 0;
  const shift = caller.uid === uid ? 6 : isInGroup(caller, gid) ? 3 : 0;
  return ((mode >> shift) & wanted) === wanted;
}

/** @throws FsError EACCES */
export function expectGranted(attributes: Attributes, caller: RpcCaller, wanted: number): void {
  if (!isGranted(attributes, caller, wanted)) throw new FsError('EACCES');
}

/** Reads and writes of a file that the caller may have opened before its mode changed. @throws FsError EACCES */
export function expectOpenable(attributes: Attributes, caller: RpcCaller, wanted: number): void {
  if (caller.uid === attributes.uid) return;
  // A program that may be run is read by the client's kernel.
  if (wanted === MAY_READ && isGranted(attributes, caller, MAY_EXECUTE)) return;
  expectGranted(attributes, caller, wanted);
}

/** @throws FsError EACCES if the caller may not add a name to the folder */
export function expectMayAdd(folder: Attributes, caller: RpcCaller): void {
  expectGranted(folder, caller, MAY_WRITE | MAY_EXECUTE);
}

/** @throws FsError EACCES, EPERM (sticky folder) if the caller may not remove the name of `entry` */
export function expectMayRemove(folder: Attributes, entry: Attributes, caller: RpcCaller): void {
  expectMayAdd(folder, caller);
  const isSticky = (folder.mode & STICKY) !== 0;
  if (isSticky && ![0, folder.uid, entry.uid].includes(caller.uid)) throw new FsError('EPERM');
}

/**
 * Checks a SETATTR.
 *
 * @returns the change as Linux applies it: without the set-id bits that the caller may not set, or that a new owner clears
 * @throws FsError EPERM, EACCES
 */
export function permittedChange(attributes: Attributes, caller: RpcCaller, change: AttributeChange): AttributeChange {
  const isRoot = caller.uid === 0;
  const isOwner = isRoot || caller.uid === attributes.uid;
  const refuse = (): never => {
    throw new FsError('EPERM');
  };
  const newUid = change.uid !== undefined && change.uid !== attributes.uid;
  const newGid = change.gid !== undefined && change.gid !== attributes.gid;
  if (change.mode !== undefined && !isOwner) refuse();
  if (change.uid !== undefined && !isRoot && (newUid || !isOwner)) refuse();
  if (change.gid !== undefined && !isRoot && (!isOwner || (newGid && !isInGroup(caller, change.gid)))) refuse();
  if (!isOwner) expectTimesAllowed(attributes, caller, change);
  if (change.sizeBytes !== undefined) expectOpenable(attributes, caller, MAY_WRITE);
  const { mode, ...rest } = change;
  if (mode !== undefined) {
    const mayKeep = isRoot || isInGroup(caller, change.gid ?? attributes.gid);
    return { ...rest, mode: mayKeep ? mode : mode & ~SET_GID };
  }
  const hasOwner = change.uid !== undefined || change.gid !== undefined;
  if (!hasOwner || attributes.kind === 'folder') return change;
  const cleared = SET_UID | ((attributes.mode & GROUP_EXECUTE) === 0 ? 0 : SET_GID);
  return (attributes.mode & cleared) === 0 ? change : { ...rest, mode: attributes.mode & ~cleared };
}

/** Only the owner sets times of its choice. Write permission is enough to set them to now. @throws FsError EPERM, EACCES */
function expectTimesAllowed(attributes: Attributes, caller: RpcCaller, { atime, mtime }: AttributeChange): void {
  const times = [atime, mtime].filter((time) => time !== undefined);
  if (times.length === 0) return;
  if (times.some((time) => time !== 'now')) throw new FsError('EPERM');
  expectGranted(attributes, caller, MAY_WRITE);
}

import type { Inode, NodeKind } from '../base/vocabulary.ts';
import type { OpContext } from '../kernel/binding.ts';
import type { LocalFacet } from '../store/tables.ts';
import type { NodeView } from './node-view.ts';

const S_ISUID = 0o4000;
const S_ISGID = 0o2000;
const S_IXGRP = 0o010;

/** The group of a new entry: a set-group-ID folder passes on its own (inode(7)). */
export function groupIn(folder: LocalFacet, ctx: OpContext): number {
  return folder.mode & S_ISGID ? folder.gid : ctx.gid;
}

/** The mode of a new entry: a set-group-ID folder passes the bit on to folders. */
export function modeIn(folder: LocalFacet, kind: NodeKind, mode: number): number {
  const inherited = kind === 'folder' ? folder.mode & S_ISGID : 0;
  return (mode & 0o7777) | inherited;
}

/** A write by a user other than root clears set-user-ID (HANDLE_KILLPRIV_V2 leaves that to the file system). */
export function dropPrivilege(view: Pick<NodeView, 'local' | 'change'>, ino: Inode, ctx: OpContext): void {
  if (ctx.uid === 0) return;
  const { mode } = view.local(ino);
  const kept = withoutPrivilege(mode);
  if (kept !== mode) view.change(ino, { mode: kept });
}

/** Clears set-user-ID, and set-group-ID if the group may execute (without that, the bit has another meaning). */
export function withoutPrivilege(mode: number): number {
  const kept = mode & ~S_ISUID;
  return kept & S_IXGRP ? kept & ~S_ISGID : kept;
}

import type { UnflushedDraft } from '../base/draft-record.ts';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { HandleRecord, Invalidator } from '../kernel/binding.ts';
import { openFlags } from '../kernel/open-flags.ts';
import { FileHandle, type FileHandleDeps } from './file-handle.ts';
import { FolderHandle } from './folder-handle.ts';
import type { Handles } from './handles.ts';
import type { KernelCache } from './kernel-cache.ts';
import { NO_NAME, type NodeView } from './node-view.ts';
import type { TemporaryFiles } from './temporary-files.ts';
import { isInVersions } from './versions-directory.ts';

/**
 * Records all handles from now on, and takes over those of an earlier mounting process that died. The kernel keeps its handles and caches
 * over the death. Handles that cannot be restored fail with EIO from now on (`Handles.file`).
 */
export function inheritHandles(
  deps: {
    readonly handles: Handles;
    readonly ofHandles: FileHandleDeps;
    readonly view: NodeView;
    readonly temporary: TemporaryFiles;
    readonly cache: Pick<KernelCache, 'staysTwo' | 'folderRemoved'>;
  },
  record: HandleRecord,
  invalidator: Invalidator,
): void {
  const { handles, ofHandles, view, temporary, cache } = deps;
  /** Inodes with handles on an older version than the newest. */
  const older = new Map<Inode, OpenFile | null>();
  handles.recordIn(record);
  const { contents, files } = ofHandles;
  contents.unflushed.recordIn(record.drafts);
  const drafts = new Map<ContentId, UnflushedDraft>();
  for (const draft of record.drafts.inherited()) if (contents.unflushed.resume(draft)) drafts.set(draft.content, draft);
  const nameless = view.recordIn(record.removals);
  const left = [...record.removals.left()];
  const inherited = [...record.inherited()].filter(({ ino }) => !isInVersions(ino));
  for (const { handle, ino, kind, flags: raw, content, hasChanged, isUnstored, leftFrom } of inherited) {
    if (kind === 'folder') {
      const folder = new FolderHandle(ino);
      for (const each of left) if (each.folder === ino && each.order >= leftFrom) folder.left(each.entry, each.name);
      handles.restore(handle, folder);
    } else if (isUnstored) {
      // What was written and never flushed is incomplete. The kernel may still have it in its pages.
      if (content !== null && content !== 'older' && drafts.delete(content)) contents.putDown(content);
      invalidator.inode(ino, 0, 0);
    } else {
      const flags = openFlags(raw);
      const use = flags.access === 'read' ? 'read' : 'write';
      const file = content === 'older' ? null : ofHandles.files.resume(ino, use, content);
      if (file !== null) {
        const opened = new FileHandle(ofHandles, ino, flags, file);
        const draft = file.content === null ? undefined : drafts.get(file.content);
        if (draft !== undefined && file.unflushed === null) file.resume(draft.content, draft.writing);
        if (hasChanged) opened.changes();
        handles.restore(handle, opened);
        if (file.content !== null && file.content !== content) record.reads(handle, file.content);
      }
      if (file === null || file.kept !== null) older.set(ino, file ?? older.get(ino) ?? null);
    }
  }
  for (const { ino, kind, local } of nameless) {
    // Without a handle no program can reach it: the open(2) was not answered, or the kernel's FORGET was lost.
    if (kind === 'folder') cache.folderRemoved(ino);
    else if (!files.isOpen(ino)) view.forget(ino);
    else if (local.name === NO_NAME) temporary.resume(ino);
  }
  for (const draft of drafts.values()) {
    const isNeeded = view.isNameless(draft.ino) ? files.isOpen(draft.ino) : files.isBeingWritten(draft.ino);
    if (!isNeeded) closeDraft(ofHandles, draft);
  }
  for (const [ino, file] of older) cache.staysTwo(ino, file);
}

/** An earlier process died before the writer got its handle. */
function closeDraft({ files, contents, view }: FileHandleDeps, { content, ino, writing }: UnflushedDraft): void {
  // Without a handle, a file was emptied by an open(2) or truncate(2) that was not answered: it comes again.
  if (view.contentOf(ino) !== content || writing.isJustEmptied) {
    contents.putDown(content);
    return;
  }
  const file = files.acquire(ino, 'write');
  try {
    file.resume(content, writing);
    file.closedByWriter();
    file.flush();
  } catch {
    // Without a handle that would report it: `OpenFile.close` logs the loss.
  } finally {
    files.release(file, 'write');
  }
}

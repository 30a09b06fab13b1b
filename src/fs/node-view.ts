import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import { type ContentId, type Inode, type Timespec, timespecOfMs } from '../base/vocabulary.ts';
import type { Attributes, AttributesReply, Entry, NegativeEntry, RemovalRecord } from '../kernel/binding.ts';
import type { LocalFacet, NodeRecord } from '../store/tables.ts';
import type { Tree } from '../tree/tree.ts';
import { attributesOf } from './attributes.ts';
import { decodedNode, encodedNode, type VisibleNode } from './encoded-node.ts';
import type { OpenFiles } from './open-files.ts';

/** Of a file of open(2) with O_TMPFILE (`Tree.createNameless`). */
export const NO_NAME = '';

/**
 * Nodes as the kernel sees them: those of the tree, and nameless ones still in use, each with the attributes that open files have not
 * written to the store yet.
 */
export class NodeView {
  readonly #tree: Tree;
  readonly #files: OpenFiles;
  readonly #clock: Clock;
  readonly #onAttributesSent: (ino: Inode) => void;
  readonly #entryTimeoutMs: number;
  readonly #attributeTimeoutMs: number;

  /** Nodes without a name that the kernel still refers to. FORGET drops them. */
  readonly #orphans = new Map<Inode, VisibleNode>();
  /** Where a successor of this process finds them; null without one. */
  #record: RemovalRecord | null = null;

  constructor(deps: {
    tree: Tree;
    files: OpenFiles;
    clock: Clock;
    /** A reply with the attributes of a node is about to be sent. */
    onAttributesSent: (ino: Inode) => void;
    entryTimeoutMs: number;
    attributeTimeoutMs: number;
  }) {
    this.#tree = deps.tree;
    this.#files = deps.files;
    this.#clock = deps.clock;
    this.#onAttributesSent = deps.onAttributesSent;
    this.#entryTimeoutMs = deps.entryTimeoutMs;
    this.#attributeTimeoutMs = deps.attributeTimeoutMs;
  }

  /** @throws FsError ESTALE for an inode that no longer exists */
  node(ino: Inode): VisibleNode {
    const node = this.#nameless(ino) ?? this.#tree.node(ino);
    if (node?.local == null) throw new FsError('ESTALE', 'this file no longer exists');
    return node as VisibleNode;
  }

  /** Whether the node has lost its last name while the kernel still refers to it. */
  isNameless(ino: Inode): boolean {
    return this.#nameless(ino) !== undefined;
  }

  local(ino: Inode): LocalFacet {
    return this.node(ino).local;
  }

  /** The bytes of a file with a name; null without any, or without a name. */
  contentOf(ino: Inode): ContentId | null {
    return this.#tree.node(ino)?.local?.content ?? null;
  }

  /** The answer to a lookup in a folder whose entries are known. */
  lookup(parent: Inode, name: string): Entry | NegativeEntry {
    const child = this.#tree.child(parent, name);
    if (child !== undefined) return this.entry(child);
    if (this.node(parent).kind !== 'folder') throw new FsError('ENOTDIR');
    // A folder that is complete without a listing may get one: of an entry of the trash that is restored. That listing sends no
    // notification for its names.
    const isListed = this.#tree.listedMs(parent) !== null;
    return { attributes: null, entryTimeoutMs: isListed ? this.#entryTimeoutMs : 0 };
  }

  entry(node: NodeRecord): Entry {
    this.#onAttributesSent(node.ino);
    return this.listed(node);
  }

  /** As `entry`, for a listing: the entry may not fit into the reply, so `onAttributesSent` is not called. */
  listed(node: NodeRecord): Entry {
    return {
      attributes: this.#attributes(node as VisibleNode),
      entryTimeoutMs: this.#entryTimeoutMs,
      attributeTimeoutMs: this.#attributeTimeoutMs,
    };
  }

  reply(ino: Inode): AttributesReply {
    this.#onAttributesSent(ino);
    return { attributes: this.#attributes(this.node(ino)), attributeTimeoutMs: this.#attributeTimeoutMs };
  }

  /** The attributes for handles that were opened before the bytes were replaced; null for a file that no longer exists. */
  olderAttributes(ino: Inode, sizeBytes: number, mtime: Timespec): Attributes | null {
    const orphan = this.#nameless(ino);
    const node = orphan ?? this.#tree.node(ino);
    if (node?.local == null) return null;
    return attributesOf(node, { ...node.local, sizeBytes, mtime }, null, orphan === undefined ? 1 : 0);
  }

  now(): Timespec {
    return timespecOfMs(this.#clock.nowMs());
  }

  /** Patches the attributes of a node; those of a nameless node live in memory only. */
  change(ino: Inode, patch: Partial<Omit<LocalFacet, 'parent' | 'name'>>): void {
    const orphan = this.#nameless(ino);
    if (orphan === undefined) this.#tree.change(ino, patch);
    else this.#keep({ ...orphan, local: { ...orphan.local, ...patch } });
  }

  /**
   * Continues with the nodes without a name of earlier processes, and records all from now on.
   *
   * @returns those nodes
   */
  recordIn(record: RemovalRecord): readonly VisibleNode[] {
    this.#record = record;
    const resumed: VisibleNode[] = [];
    for (const { ino, node: bytes } of record.nameless()) {
      const node = decodedNode(ino, bytes);
      if (node === null || this.#tree.node(ino)?.local != null) {
        record.dropped(ino);
        continue;
      }
      resumed.push(node);
      this.#orphans.set(ino, node);
      this.#files.orphan(node);
    }
    return resumed;
  }

  /** The node is about to lose its name. */
  losing(node: NodeRecord): void {
    if (this.#record !== null && this.#isInUse(node)) this.#record.lost(node.ino, encodedNode(node));
  }

  /** The node lost its last name: handles and the kernel may use it until they release it. */
  orphan(node: NodeRecord): void {
    const unflushed = this.#files.get(node.ino)?.unflushed ?? null;
    const last = (node as VisibleNode).local;
    const local = unflushed === null ? { ...last, ctime: this.now() } : { ...last, ...unflushed, ctime: this.now() };
    const orphan = { ...node, local };
    this.#keep(orphan);
    this.#files.orphan(orphan);
  }

  /** A nameless node got a name, and is in the tree. */
  named(ino: Inode): void {
    this.#orphans.delete(ino);
    this.#record?.dropped(ino);
    this.#files.named(ino);
  }

  /** FORGET of an inode. A nameless one is never looked up again, so its lookup counts come back together. */
  forget(ino: Inode): void {
    if (this.#orphans.size === 0 || this.#files.isOpen(ino)) return;
    this.#orphans.delete(ino);
    this.#record?.dropped(ino);
    this.#files.forget(ino);
  }

  #keep(orphan: VisibleNode): void {
    this.#orphans.set(orphan.ino, orphan);
    this.losing(orphan);
  }

  /** A file without handles, and not about to get one: the kernel forgets it. Of a folder, a process may be in it. */
  #isInUse({ ino, kind, local }: NodeRecord): boolean {
    return kind === 'folder' || this.#files.isOpen(ino) || local?.name === NO_NAME;
  }

  #attributes(node: VisibleNode): Attributes {
    const unflushed = node.kind === 'file' ? (this.#files.get(node.ino)?.unflushed ?? null) : null;
    return attributesOf(node, node.local, unflushed, this.isNameless(node.ino) ? 0 : 1);
  }

  /**
   * The node as it was when it lost its last name; undefined for one with a name. A folder that reappears is the same node: an entry was
   * created in it elsewhere, or its deletion was discarded. (A file that reappears is another node.)
   */
  #nameless(ino: Inode): VisibleNode | undefined {
    const orphan = this.#orphans.size > 0 ? this.#orphans.get(ino) : undefined;
    if (orphan?.kind !== 'folder' || this.#tree.node(ino)?.local == null) return orphan;
    this.#orphans.delete(ino);
    this.#record?.dropped(ino);
    return undefined;
  }
}

import type { Inode } from '../base/vocabulary.ts';
import type { TreeInvalidation } from './listing-application.ts';

export type LocalChangeKind = 'created' | 'moved' | 'removed' | 'content' | 'attributes';

/** What happens to the nodes of a mount, by the name of the event. Each is emitted after it is recorded. */
export interface NodeEvents {
  /** A user operation changed the node. */
  local: [ino: Inode, what: LocalChangeKind];
  /** Bytes of an open file are stored, or may be pushed although it stays open. */
  written: [ino: Inode];
  /** Changes that no user operation made: by listings, by the sync, by a revalidation. */
  remote: [changes: readonly TreeInvalidation[]];
  /** A save replaced the node of a file (`OwnershipTransfer`); emitted before the removal of the replaced one. */
  ownershipTransferred: [from: Inode, to: Inode];
  /** Nodes came back that were pinned before they were gone; the store has their pins. */
  pinned: [inos: readonly Inode[]];
  /** Files that a program took for broken, because their bytes were refused, can be read: it may try again. */
  readable: [inos: readonly Inode[]];
}

/**
 * The one emitter between the tree, the open files, the sync and what observes them. It needs none of them, so it is made
 * first and they are made in order. Listeners run synchronously, in the order of their registration.
 */
export class NodeChanges {
  readonly #listeners: { readonly [Event in keyof NodeEvents]: ((...args: NodeEvents[Event]) => void)[] } = {
    local: [],
    written: [],
    remote: [],
    ownershipTransferred: [],
    pinned: [],
    readable: [],
  };

  on<Event extends keyof NodeEvents>(event: Event, listener: (...args: NodeEvents[Event]) => void): void {
    this.#listeners[event].push(listener);
  }

  emit<Event extends keyof NodeEvents>(event: Event, ...args: NodeEvents[Event]): void {
    for (const listener of this.#listeners[event]) listener(...args);
  }
}

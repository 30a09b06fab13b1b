import type { Inode } from '../base/vocabulary.ts';
import { decodeValue, encodeValue } from '../store/record-codec.ts';
import { encodeKey } from '../store/row-key.ts';
import type { LocalFacet, NodeRecord } from '../store/tables.ts';

/** A node with a local facet: every node that the kernel may ask about. */
export type VisibleNode = NodeRecord & { readonly local: LocalFacet };

/** A node as a checked row of the store. */
export function encodedNode(node: NodeRecord): Uint8Array {
  return encodeValue('node', node.ino, encodeKey('node', node.ino), node);
}

/** @returns null for a damaged row, and for a node that was not visible */
export function decodedNode(ino: Inode, bytes: Uint8Array): VisibleNode | null {
  try {
    const node = decodeValue('node', ino, encodeKey('node', ino), bytes);
    return node?.local == null ? null : (node as VisibleNode);
  } catch {
    return null;
  }
}

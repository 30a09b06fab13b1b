import { NAME_BYTES_MAX } from './protocol.ts';

/**
 * Composed (NFC) and decomposed (NFD) names. Apple's client shows names decomposed, and sends either form. For it the two forms are one name, as
 * on APFS; for Linux they are two.
 */

/** The names under which a client may mean an entry, in the order in which they are looked up: the name as it is sent comes first. */
export function formsOf(name: string): readonly string[] {
  const forms = new Set([name, name.normalize('NFC'), name.normalize('NFD')]);
  return [...forms].filter((form) => form === name || Buffer.byteLength(form) <= NAME_BYTES_MAX);
}

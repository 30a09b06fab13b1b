import { type CollectionContentsDocument, encodeCollectionContents } from '../protocol/messages.ts';

/** Entries encoded in one turn of the event loop: about a millisecond. */
const PIECE_ENTRIES = 100;

/** The end of the last long listing of each caller who has one under way. */
const last = new Map<string, Promise<unknown>>();

/**
 * Encodes a listing; a long one in pieces, so that others are answered in between. Long ones of one caller are encoded one after another: a
 * client that requests several pages gets the first one early, and works on it while the next one is encoded.
 */
export async function contentsXml(document: CollectionContentsDocument, caller: string): Promise<string> {
  const { collections, files } = document;
  if (collections.length + files.length <= PIECE_ENTRIES) return encodeCollectionContents(document);
  const encoded = (last.get(caller) ?? Promise.resolve()).then(() => inPieces(document));
  // The result and the error belong to that listing.
  const ended = encoded.then(
    () => {},
    () => {},
  );
  last.set(caller, ended);
  try {
    return await encoded;
  } finally {
    if (last.get(caller) === ended) last.delete(caller);
  }
}

async function inPieces(document: CollectionContentsDocument): Promise<string> {
  const { collections, files } = document;
  const length = collections.length + files.length;
  const pieces: string[] = [];
  for (let at = 0; at < length; at += PIECE_ENTRIES) {
    if (at > 0) await new Promise((resolve) => setImmediate(resolve));
    const firstFile = Math.max(0, at - collections.length);
    const piece = {
      ...document,
      collections: collections.slice(at, at + PIECE_ENTRIES),
      files: files.slice(firstFile, Math.max(0, at + PIECE_ENTRIES - collections.length)),
    };
    const xml = encodeCollectionContents(piece);
    // All pieces have the same root element around their entries.
    const inner = { start: xml.indexOf('>', xml.indexOf(ROOT)) + 1, end: xml.lastIndexOf('</') };
    if (at === 0) pieces.push(xml.slice(0, inner.start));
    pieces.push(xml.slice(inner.start, inner.end));
    if (at + PIECE_ENTRIES >= length) pieces.push(xml.slice(inner.end));
  }
  return pieces.join('');
}

const ROOT = '<collectionContents';

import { crc32 } from '../base/checksum.ts';
import { FsError, isOutOfDescriptors } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { BLOCK_BYTES, type ContentId, type Extent } from '../base/vocabulary.ts';
import type { ContentRecord } from '../store/tables.ts';
import { type BlockMap, blockLength } from './block-map.ts';
import type { ContentFiles, Place } from './content-files.ts';
import type { Piece, Presence } from './contents.ts';
import type { Draft } from './draft.ts';
import { isFrozenFile } from './draft-checksums.ts';
import { alignOut, indexBehind } from './extents.ts';

/** Range that `nextData` resolves in one step. */
const SEEK_WINDOW_BYTES = 64 * 1024 * 1024;

/** The records and bytes from which `ContentLayers` resolves a read. */
export interface LayerSource {
  /** An open draft: newer than its record. */
  draft(id: ContentId): Draft | undefined;
  /** @throws if the content does not exist */
  record(id: ContentId): ContentRecord;
  /** Small bytes; `damaged`: they are not the bytes that were stored. */
  inlineBytes(id: ContentId): Uint8Array | 'damaged';
  blockMap(id: ContentId): BlockMap;
  /** The first offset from `from` on where a block of a version may be present; Infinity for none. */
  mayBePresentAt(id: ContentId, from: number): number;
  /** A block that is kept in memory because the disk has no room for it. */
  memoryBlock(id: ContentId, block: number): Uint8Array | undefined;
  /** Whether the own ranges in the file of an unmerged version are valid. */
  trustsLayers(id: ContentId): boolean;
  /** The bytes of a block are not those that were written. */
  damaged(id: ContentId, block: number, sizeBytes: number, below: 'own ranges' | 'nothing'): void;
  /** The file of an unmerged version is missing: its own ranges are invalid from now on. */
  lost(id: ContentId): void;
  /** Compares the own ranges of a frozen draft with their checksums. @throws FsError EIO */
  checkFrozen(id: ContentId, record: ContentRecord, start: number, end: number): void;
}

/** One layer: own ranges over a base. */
interface Layer {
  readonly id: ContentId;
  readonly extents: readonly number[];
  readonly base: ContentId | null;
  readonly baseBytes: number;
  readonly place: Place;
  /** Own bytes by offset; null: they are in the file. */
  readonly memory: Uint8Array | null;
  /** The record of a frozen draft whose own bytes have checksums; null if there is nothing to compare. */
  readonly frozen: ContentRecord | null;
}

/**
 * Resolves a content into pieces: a draft's own ranges, its base below, zeros beyond; a version's blocks by its map.
 *
 * A version that was a draft keeps its layers until they are merged. Bytes in none of them are missing from *it*, never from its
 * base: the service may have dropped the base's version by then.
 */
export class ContentLayers {
  readonly #source: LayerSource;
  readonly #files: ContentFiles;
  readonly #log: Logger;
  #isOutline = false;

  constructor(deps: { source: LayerSource; files: ContentFiles; log: Logger }) {
    this.#source = deps.source;
    this.#files = deps.files;
    this.#log = deps.log;
  }

  sizeOf(id: ContentId): number {
    return this.#source.draft(id)?.sizeBytes ?? this.#source.record(id).sizeBytes;
  }

  /** `start` and `end` lie within the content. */
  resolve(id: ContentId, start: number, end: number): Piece[] {
    const out: Piece[] = [];
    if (start >= end) return out;
    this.#files.beginLook();
    try {
      this.#walk(id, start, end, out);
    } finally {
      this.#files.endLook();
    }
    return out;
  }

  /** See `Contents.nextData`. Skips zeros without walking through them. */
  nextData(id: ContentId, offset: number): Extent | null {
    const sizeBytes = this.sizeOf(id);
    for (let from = this.#mayBeginAt(id, Math.max(0, offset)); from < sizeBytes; ) {
      const to = Math.min(from + SEEK_WINDOW_BYTES, sizeBytes);
      const data = firstData(this.#outline(id, from, to), from);
      if (data !== null) return data;
      from = this.#mayBeginAt(id, to);
    }
    return null;
  }

  /** See `Contents.presence`. */
  presence(id: ContentId, sizeBytes: number): Presence {
    const end = Math.min(sizeBytes, this.sizeOf(id));
    let [isSomeHere, isSomeMissing] = [false, false];
    for (let at = 0; at < end; at += SEEK_WINDOW_BYTES) {
      // A service may claim petabytes: bytes that cannot be here are skipped, not walked through.
      const start = this.#mayBeHereAt(id, at);
      if (start > at) isSomeMissing = true;
      if (start >= end) break;
      at = start;
      for (const { kind } of this.#outline(id, start, Math.min(start + SEEK_WINDOW_BYTES, end))) {
        if (kind === 'missing') isSomeMissing = true;
        else isSomeHere = true;
        if (isSomeHere && isSomeMissing) return 'part';
      }
      if (isSomeHere && isSomeMissing) return 'part';
    }
    if (isSomeHere && isSomeMissing) return 'part';
    return isSomeMissing ? 'none' : 'all';
  }

  /** The first offset from `from` on whose bytes may be on this machine, or are zeros; Infinity if all are missing. */
  #mayBeHereAt(id: ContentId, from: number): number {
    const layer = this.#source.draft(id) ?? this.#source.record(id);
    const isVersion = 'kind' in layer && layer.kind === 'version';
    if (isVersion && layer.where === 'inline') return from;
    const block = isVersion ? this.#source.mayBePresentAt(id, from) : Number.POSITIVE_INFINITY;
    if (isVersion && !isLayered(layer)) return block;
    const { extents, base, baseBytes } = layer;
    const index = indexBehind(extents, from);
    const own = Math.max(from, extents[index] ?? Number.POSITIVE_INFINITY);
    const visible = base === null ? 0 : Math.min(baseBytes, this.sizeOf(base));
    const below = base === null || from >= visible ? from : Math.min(this.#mayBeHereAt(base, from), visible);
    return Math.min(block, own, below);
  }

  /** The first offset from `from` on where data may begin, by the ranges of drafts; Infinity if only zeros follow. */
  #mayBeginAt(id: ContentId, from: number): number {
    const layer = this.#source.draft(id) ?? this.#source.record(id);
    if ('kind' in layer && layer.kind === 'version') return from;
    const { extents, base, baseBytes } = layer;
    const own = extents[indexBehind(extents, from)] ?? Number.POSITIVE_INFINITY;
    const isBaseVisible = base !== null && from < Math.min(baseBytes, this.sizeOf(base));
    const below = isBaseVisible ? this.#mayBeginAt(base, from) : Number.POSITIVE_INFINITY;
    return Math.max(from, Math.min(own, below));
  }

  /** As `resolve`, to find zeros only: no block is verified, so that a large file can be resolved as a whole. */
  #outline(id: ContentId, start: number, end: number): Piece[] {
    this.#isOutline = true;
    try {
      return this.resolve(id, start, end);
    } finally {
      this.#isOutline = false;
    }
  }

  #walk(id: ContentId, start: number, end: number, out: Piece[]): void {
    const draft = this.#source.draft(id);
    if (draft !== undefined) {
      const { extents, base, baseBytes, memory } = draft;
      this.#walkLayer({ id, extents, base, baseBytes, memory, place: 'drafts', frozen: null }, start, end, out);
      return;
    }
    const record = this.#source.record(id);
    if (record.kind === 'draft') this.#walkLayer(this.#layerOf(id, record), start, end, out);
    else this.#walkVersion(id, record, start, end, out);
  }

  #walkLayer(layer: Layer, start: number, end: number, out: Piece[]): void {
    const { extents } = layer;
    let at = start;
    for (let index = indexBehind(extents, start); at < end; index += 2) {
      const ownStart = Math.min(extents[index] ?? end, end);
      if (ownStart > at) this.#walkBase(layer, at, ownStart, out);
      at = Math.max(at, ownStart);
      const ownEnd = Math.min(extents[index + 1] ?? end, end);
      if (ownEnd > at && index < extents.length) {
        if (layer.frozen !== null && !this.#isOutline) this.#source.checkFrozen(layer.id, layer.frozen, at, ownEnd);
        if (layer.memory !== null) append(out, bytesPiece(layer.memory.subarray(at, ownEnd)));
        else append(out, this.#slice(layer.id, layer.place, at, ownEnd));
        at = ownEnd;
      }
    }
  }

  #walkBase({ base, baseBytes }: Layer, start: number, end: number, out: Piece[]): void {
    let at = start;
    if (base !== null && start < baseBytes) {
      const visible = Math.min(end, baseBytes, this.sizeOf(base));
      if (visible > start) {
        this.#walk(base, start, visible, out);
        at = visible;
      }
    }
    if (at < end) append(out, { kind: 'zeros', length: end - at });
  }

  #walkVersion(id: ContentId, record: ContentRecord, start: number, end: number, out: Piece[]): void {
    const inline = record.where === 'inline' ? this.#source.inlineBytes(id) : null;
    const isBelieved = record.where === 'file' ? this.#source.trustsLayers(id) : inline !== 'damaged';
    const layered = isLayered(record) && isBelieved;
    // A damaged inline content has only the blocks fetched since, past the disk.
    if (inline !== null && inline !== 'damaged' && !layered) {
      append(out, bytesPiece(inline.subarray(start, end)));
      return;
    }
    if (layered && record.where === 'file' && !this.#files.isThere(id)) {
      this.#log.warn({ content: id }, 'the file of a version is missing: it will be fetched again');
      this.#source.lost(id);
      this.#walkVersion(id, this.#source.record(id), start, end, out);
      return;
    }
    const map = this.#source.blockMap(id);
    const find = (block: number): Uint8Array | 'file' | 'below' | 'missing' => {
      const kept = this.#source.memoryBlock(id, block);
      if (kept !== undefined) return kept;
      if (this.#isSound(id, record, map, block)) return 'file';
      return layered && !map.isDamaged(block) ? 'below' : 'missing';
    };
    for (let at = start; at < end; ) {
      // Adjacent blocks in the same place form one piece.
      const first = Math.floor(at / BLOCK_BYTES);
      const found = find(first);
      let behind = first + 1;
      while (behind * BLOCK_BYTES < end && find(behind) === found) behind++;
      const stop = Math.min(behind * BLOCK_BYTES, end);
      if (found === 'file') {
        const slice = this.#cached(id, record, at, stop);
        if (slice === null) continue;
        append(out, slice);
      } else if (found === 'below') this.#walkBelowVersion(id, record, at, stop, out);
      else if (found === 'missing') append(out, missing(id, at, stop, record.sizeBytes));
      else {
        const bytes = found.subarray(at - first * BLOCK_BYTES, stop - first * BLOCK_BYTES);
        append(out, { ...bytesPiece(bytes), isPassing: true });
      }
      at = stop;
    }
  }

  #walkBelowVersion(id: ContentId, record: ContentRecord, start: number, end: number, out: Piece[]): void {
    const below: Piece[] = [];
    this.#walkLayer(this.#layerOf(id, record), start, end, below);
    let at = start;
    for (const piece of below) {
      append(out, piece.kind === 'missing' ? missing(id, at, at + piece.length, record.sizeBytes) : piece);
      at += piece.length;
    }
  }

  #layerOf(id: ContentId, record: ContentRecord): Layer {
    const { extents, base, baseBytes, where } = record;
    return {
      id,
      extents,
      base,
      baseBytes,
      place: record.kind === 'version' ? 'cache' : 'drafts',
      memory: where === 'inline' ? this.#ownInline(id) : null,
      frozen: isFrozenFile(record) ? record : null,
    };
  }

  /** @throws FsError EIO for damaged bytes that exist nowhere else */
  #ownInline(id: ContentId): Uint8Array {
    const bytes = this.#source.inlineBytes(id);
    if (bytes === 'damaged')
      throw new FsError('EIO', `the bytes of content ${id} are damaged, and nothing else holds them`);
    return bytes;
  }

  /** Whether a block is present and matches its checksum; verified once per run. */
  #isSound(id: ContentId, record: ContentRecord, map: BlockMap, block: number): boolean {
    if (!map.isPresent(block)) return false;
    if (map.isVerified(block) || this.#isOutline) return true;
    const length = blockLength(block, record.sizeBytes);
    let bytes: Uint8Array | null = null;
    try {
      bytes = this.#files.lend(id, 'cache', block * BLOCK_BYTES, length);
    } catch (err) {
      if (isOutOfDescriptors(err)) throw err;
      this.#log.warn({ content: id, block, err }, 'cached block cannot be read: it will be fetched again');
    }
    if (bytes?.byteLength === length && crc32(bytes, 0) === map.checksumOf(block)) {
      map.verified(block);
      return true;
    }
    if (bytes !== null) this.#log.warn({ content: id, block }, 'cached block is damaged: it will be fetched again');
    this.#source.damaged(id, block, record.sizeBytes, isLayered(record) ? 'own ranges' : 'nothing');
    return false;
  }

  /** Present blocks; null if their file was removed from outside: they are missing from now on. */
  #cached(id: ContentId, record: ContentRecord, start: number, end: number): Piece | null {
    try {
      return this.#slice(id, 'cache', start, end);
    } catch (err) {
      // The base of a change may exist nowhere else: give it up only if its file is missing.
      if (!isGone(err)) throw err;
      this.#log.warn({ content: id, err }, 'the file of cached blocks is missing: they will be fetched again');
      for (let block = Math.floor(start / BLOCK_BYTES); block * BLOCK_BYTES < end; block++)
        this.#source.damaged(id, block, record.sizeBytes, isLayered(record) ? 'own ranges' : 'nothing');
      return null;
    }
  }

  #slice(id: ContentId, place: Place, start: number, end: number): Piece {
    return {
      kind: 'slice',
      length: end - start,
      content: id,
      fd: this.#files.descriptor(id, place),
      path: this.#files.path(id, place),
      position: start,
    };
  }
}

/** Whether an acknowledged draft still rests on its own ranges and its base. */
export function isLayered(record: ContentRecord): boolean {
  return record.base !== null || record.extents.length > 0;
}

function isGone(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause)
    if ((at as NodeJS.ErrnoException).code === 'ENOENT') return true;
  return false;
}

/** A draft lies over at most a frozen one, and that over a version; adopted layers may add some until they are merged. */
const LAYERS_MAX = 16;

/** A content and its bases, top first. @param record undefined for a missing content: the chain ends with it */
export function layersOf(top: ContentId, record: (id: ContentId) => ContentRecord | undefined): readonly ContentId[] {
  const layers: ContentId[] = [];
  for (let id: ContentId | null = top; id !== null && layers.length < LAYERS_MAX; id = record(id)?.base ?? null) {
    layers.push(id);
  }
  return layers;
}

/** The first extent of `pieces` that is not zeros; the first piece begins at `from`. */
function firstData(pieces: readonly Piece[], from: number): Extent | null {
  let at = from;
  let start: number | null = null;
  for (const piece of pieces) {
    if (piece.kind !== 'zeros') start ??= at;
    else if (start !== null) break;
    at += piece.length;
  }
  return start === null ? null : { start, end: at };
}

function bytesPiece(bytes: Uint8Array): Extract<Piece, { kind: 'bytes' }> {
  return { kind: 'bytes', length: bytes.byteLength, bytes };
}

function missing(content: ContentId, start: number, end: number, sizeBytes: number): Piece {
  return { kind: 'missing', length: end - start, content, extent: alignOut({ start, end }, BLOCK_BYTES, sizeBytes) };
}

/** Adds a piece; merges it with its predecessor if they are adjacent. */
function append(out: Piece[], piece: Piece): void {
  if (piece.length === 0) return;
  const last = out.at(-1);
  const joined = last === undefined ? null : join(last, piece);
  if (joined === null) out.push(piece);
  else out[out.length - 1] = joined;
}

function join(a: Piece, b: Piece): Piece | null {
  const length = a.length + b.length;
  if (a.kind === 'zeros' && b.kind === 'zeros') return { kind: 'zeros', length };
  if (a.kind === 'slice' && b.kind === 'slice' && a.fd === b.fd && a.position + a.length === b.position) {
    return { ...a, length };
  }
  if (a.kind === 'missing' && b.kind === 'missing' && a.content === b.content && b.extent.start <= a.extent.end) {
    const extent: Extent = {
      start: Math.min(a.extent.start, b.extent.start),
      end: Math.max(a.extent.end, b.extent.end),
    };
    return { ...a, length, extent };
  }
  return null;
}

import { ProtocolError } from '../base/errors.ts';
import type { Part, RecordCodec, ScalarCodec } from './codec.ts';

/** Limits of a document, for every dimension in which it can grow. */
export interface XmlLimits {
  /** Length of the whole document. */
  readonly bytesMax: number;
  readonly depthMax: number;
  /** Elements of one kind in one list. */
  readonly entriesMax: number;
  /** UTF-16 units of one element's text, one attribute, one comment. */
  readonly textMax: number;
  readonly attributesMax: number;
}

export const XML_LIMITS: XmlLimits = {
  bytesMax: 64 * 1024 * 1024,
  depthMax: 16,
  entriesMax: 200_000,
  textMax: 64 * 1024,
  attributesMax: 32,
};

/** A value in an error message. */
const SHOWN_CHARS = 40;

export type Attributes = Readonly<Record<string, string>>;

/**
 * A record being read. Scalars need no frame: seven of eight elements of a listing are scalars and contain only text.
 */
interface Frame {
  name: string;
  /** Index within a list, or -1. */
  index: number;
  codec: RecordCodec<unknown>;
  part: Part | null;
  values: Record<string, unknown>;
  /** Position of the most likely next part: documents repeat their elements in the same order. */
  next: number;
  text: string;
}

/**
 * Builds a value from a document's elements by its codec. The parser calls `open`, `text` and `close`, and takes
 * `value` at the end. After an error the reader must not be used again.
 */
export class DocumentReader<T> {
  readonly #root: string;
  readonly #codec: RecordCodec<T>;
  readonly #limits: XmlLimits;
  readonly #stack: Frame[] = [];
  /** Recycled frames of closed elements: a listing has a hundred thousand, but never ten open together. */
  readonly #spare: Frame[] = [];
  /** The innermost open record. */
  #top: Frame | null = null;
  /** The open scalar and its text so far. */
  #scalar: Part | null = null;
  #scalarCodec: ScalarCodec<unknown> | null = null;
  #text = '';
  #depth = 0;
  /** Depth of the unknown element being skipped, or 0. */
  #skipFrom = 0;
  #value: T | undefined;

  constructor(root: string, codec: RecordCodec<T>, limits: XmlLimits) {
    this.#root = root;
    this.#codec = codec;
    this.#limits = limits;
  }

  /** @throws ProtocolError while the root element has not been closed */
  get value(): T {
    if (this.#value === undefined) throw new ProtocolError(`${this.#root}: no such document`);
    return this.#value;
  }

  open(name: string, attributes: Attributes): void {
    this.#depth += 1;
    if (this.#depth > this.#limits.depthMax) this.#fail(`deeper than ${this.#limits.depthMax} elements`);
    if (this.#skipFrom !== 0) return;
    if (this.#scalar !== null) this.#fail(`expected ${this.#scalarCodec?.expected}, got <${shown(name)}>`);
    const parent = this.#top;
    if (parent === null) {
      if (name !== this.#root) throw new ProtocolError(`expected <${this.#root}>, got <${shown(name)}>`);
      this.#openRecord(name, attributes, this.#codec as RecordCodec<unknown>, null, -1);
      return;
    }
    const part = partNamed(parent, name);
    if (part === undefined) {
      this.#skipFrom = this.#depth;
      return;
    }
    const index = this.#claim(parent, part);
    parent.next = part.arity === 'many' ? part.position : part.position + 1;
    const { codec } = part;
    if (codec.kind === 'record') {
      this.#openRecord(name, attributes, codec, part, index);
      return;
    }
    this.#scalar = part;
    this.#scalarCodec = codec;
    this.#text = '';
    this.#checkAttributes(attributes);
  }

  /** Index of the element within its parent. */
  #claim(parent: Frame, part: Part): number {
    if (part.arity === 'many') {
      const list = parent.values[part.key] as unknown[];
      if (list.length === this.#limits.entriesMax) this.#fail(`more than ${this.#limits.entriesMax} <${part.name}>`);
      return list.length;
    }
    // Two sizes of one file: either might be wrong.
    if (parent.values[part.key] !== undefined) this.#fail(`<${part.name}> comes twice`);
    return -1;
  }

  #openRecord(
    name: string,
    attributes: Attributes,
    codec: RecordCodec<unknown>,
    part: Part | null,
    index: number,
  ): void {
    const frame = this.#frame(name, codec, part, index);
    this.#checkAttributes(attributes);
    for (const list of codec.lists) frame.values[list.key] = [];
    for (const { name: source, part: attribute } of codec.attributes) {
      const raw = attributes[source];
      if (raw !== undefined) this.#take(frame, attribute, raw, `.@${source}`);
    }
  }

  #frame(name: string, codec: RecordCodec<unknown>, part: Part | null, index: number): Frame {
    const spare = this.#spare.pop();
    const frame = spare ?? { name, index, codec, part, values: {}, next: 0, text: '' };
    if (spare !== undefined) {
      spare.name = name;
      spare.index = index;
      spare.codec = codec;
      spare.part = part;
      spare.values = {};
      spare.next = 0;
      spare.text = '';
    }
    this.#stack.push(frame);
    this.#top = frame;
    return frame;
  }

  #checkAttributes(attributes: Attributes): void {
    let count = 0;
    for (const name in attributes) {
      count += 1;
      if ((attributes[name] as string).length > this.#limits.textMax)
        this.#fail(`attribute ${shown(name)} is too long`);
    }
    if (count > this.#limits.attributesMax) this.#fail(`more than ${this.#limits.attributesMax} attributes`);
  }

  text(characters: string): void {
    if (this.#skipFrom !== 0) return;
    if (this.#scalar !== null) {
      this.#text = this.#text === '' ? characters : this.#text + characters;
      if (this.#text.length > this.#limits.textMax) this.#fail(`a text longer than ${this.#limits.textMax}`);
      return;
    }
    const frame = this.#top;
    if (frame === null || frame.codec.ownText === null) return;
    frame.text += characters;
    if (frame.text.length > this.#limits.textMax) this.#fail(`a text longer than ${this.#limits.textMax}`);
  }

  close(): void {
    this.#depth -= 1;
    if (this.#skipFrom !== 0) {
      if (this.#depth < this.#skipFrom) this.#skipFrom = 0;
      return;
    }
    const scalar = this.#scalar;
    if (scalar !== null) {
      this.#take(this.#top as Frame, scalar, this.#text, '');
      this.#scalar = null;
      return;
    }
    // The frame stays on the stack until it is complete, so that errors can name it.
    const frame = this.#top as Frame;
    const value = this.#closeRecord(frame);
    this.#stack.pop();
    this.#spare.push(frame);
    this.#top = this.#stack.at(-1) ?? null;
    if (this.#top === null) this.#value = value as T;
    else keep(this.#top, frame.part as Part, value);
  }

  #closeRecord(frame: Frame): unknown {
    const { values, codec } = frame;
    if (codec.ownText !== null) this.#take(frame, codec.ownText, frame.text, '');
    for (const part of codec.required) {
      if (values[part.key] === undefined) this.#fail(part.name === '#text' ? 'no text' : `no ${part.name}`);
    }
    return codec.close(values);
  }

  /** Parses a text and stores its value under the part's key. */
  #take(frame: Frame, part: Part, raw: string, place: string): void {
    const { codec } = part;
    if (codec.kind !== 'scalar') throw new TypeError(`${part.name} is an element, not a text`);
    const value = codec.parse(raw);
    if (value !== undefined) {
      keep(frame, part, typeof value === 'string' ? detached(value) : value);
      return;
    }
    const isEmpty = codec.emptyIsAbsent && raw.trim() === '';
    if (isEmpty && part.arity === 'optional') return;
    this.#fail(`expected ${codec.expected}, got ${JSON.stringify(shown(raw))}`, place);
  }

  #fail(what: string, place = ''): never {
    const names = this.#stack.map((frame) => (frame.index < 0 ? frame.name : `${frame.name}[${frame.index}]`));
    if (this.#scalar !== null) names.push(this.#scalar.name);
    throw new ProtocolError(`${names.length === 0 ? this.#root : names.join('.')}${place}: ${what}`);
  }
}

function partNamed(parent: Frame, name: string): Part | undefined {
  const likely = parent.codec.parts[parent.next];
  return likely !== undefined && likely.name === name ? likely : parent.codec.byChild.get(name);
}

function keep(frame: Frame, part: Part, value: unknown): void {
  if (part.arity === 'many') (frame.values[part.key] as unknown[]).push(value);
  else frame.values[part.key] = value;
}

/**
 * A copy of the text with memory of its own. Substrings of a parsed chunk keep the whole chunk in memory: a listing's
 * names and URLs would retain all of its markup.
 *
 * V8 has no function for that. It joins two strings without copying until a character is read. The copy made then
 * refers to nothing else, and garbage collection keeps only the copy.
 */
function detached(text: string): string {
  if (text.length < CUT_CHARS_MIN) return text;
  const joined = text.charAt(0) + text.slice(1);
  return joined.charCodeAt(0) >= 0 ? joined : text;
}

/** Shorter texts are copied by V8 anyway. */
const CUT_CHARS_MIN = 13;

/** Shortens a value for an error message. */
export function shown(raw: string): string {
  return raw.length <= SHOWN_CHARS ? raw : `${raw.slice(0, SHOWN_CHARS)}…`;
}

import { ProtocolError } from '../base/errors.ts';
import type { Codec, Part, RecordCodec } from './codec.ts';

/** How large a document may be, in every direction in which it can grow. */
export interface XmlLimits {
  /** Of the whole document. */
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

/** Of a scalar: seven of eight elements of a listing are. Never written to. */
const NO_VALUES: Record<string, unknown> = Object.freeze({});
/** A value in an error message. */
const SHOWN_CHARS = 40;

export type Attributes = Readonly<Record<string, string>>;

/** An element being read. */
interface Frame {
  name: string;
  /** Which of a list it is, or -1. */
  index: number;
  codec: Codec<unknown>;
  part: Part | null;
  values: Record<string, unknown>;
  text: string;
}

/**
 * Makes a value of a document's elements as they open and close, by its codec. Knows nothing of angle brackets: whoever
 * parses them calls `open`, `text` and `close`, and takes `value` at the end. After an error it must not be used again.
 */
export class DocumentReader<T> {
  readonly #root: string;
  readonly #codec: RecordCodec<T>;
  readonly #limits: XmlLimits;
  readonly #stack: Frame[] = [];
  /** Frames of elements that were closed, to be used again: a listing has a million elements, never ten at once. */
  readonly #spare: Frame[] = [];
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
    const parent = this.#stack.at(-1);
    if (parent === undefined) {
      if (name !== this.#root) throw new ProtocolError(`expected <${this.#root}>, got <${shown(name)}>`);
      this.#push(name, attributes, this.#codec as Codec<unknown>, null, -1);
      return;
    }
    if (parent.codec.kind === 'scalar') this.#fail(`expected ${parent.codec.expected}, got <${shown(name)}>`);
    const part = (parent.codec as RecordCodec<unknown>).byChild.get(name);
    if (part === undefined) {
      this.#skipFrom = this.#depth;
      return;
    }
    this.#push(name, attributes, part.codec, part, this.#claim(parent, part));
  }

  /** Which place in its parent the element takes. */
  #claim(parent: Frame, part: Part): number {
    if (part.arity === 'many') {
      const list = parent.values[part.key] as unknown[];
      if (list.length === this.#limits.entriesMax) this.#fail(`more than ${this.#limits.entriesMax} <${part.name}>`);
      return list.length;
    }
    // Two sizes of one file: whichever we took, it might be the wrong one.
    if (parent.values[part.key] !== undefined) this.#fail(`<${part.name}> comes twice`);
    return -1;
  }

  #push(name: string, attributes: Attributes, codec: Codec<unknown>, part: Part | null, index: number): void {
    const frame = this.#frame(name, codec, part, index);
    this.#checkAttributes(attributes);
    if (codec.kind === 'scalar') return;
    for (const child of codec.parts) if (child.arity === 'many') frame.values[child.key] = [];
    if (codec.byAttribute.size === 0) return;
    for (const [source, attribute] of codec.byAttribute) {
      const raw = attributes[source];
      if (raw !== undefined) this.#take(frame, attribute, raw, `.@${source}`);
    }
  }

  #frame(name: string, codec: Codec<unknown>, part: Part | null, index: number): Frame {
    const values = codec.kind === 'scalar' ? NO_VALUES : {};
    const spare = this.#spare.pop();
    const frame = spare ?? { name, index, codec, part, values, text: '' };
    if (spare !== undefined) {
      spare.name = name;
      spare.index = index;
      spare.codec = codec;
      spare.part = part;
      spare.values = values;
      spare.text = '';
    }
    this.#stack.push(frame);
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
    const frame = this.#stack.at(-1);
    if (frame === undefined || this.#skipFrom !== 0) return;
    if (frame.codec.kind === 'record' && frame.codec.ownText === null) return;
    frame.text += characters;
    if (frame.text.length > this.#limits.textMax) this.#fail(`a text longer than ${this.#limits.textMax}`);
  }

  close(): void {
    this.#depth -= 1;
    if (this.#skipFrom !== 0) {
      if (this.#depth < this.#skipFrom) this.#skipFrom = 0;
      return;
    }
    // The frame stays on the stack until it is done, so that an error names it.
    const frame = this.#stack.at(-1) as Frame;
    const parent = this.#stack.at(-2);
    const { codec, part } = frame;
    if (codec.kind === 'scalar') {
      this.#take(parent as Frame, part as Part, frame.text, '');
    } else {
      const value = this.#closeRecord(frame, codec);
      if (parent === undefined) this.#value = value as T;
      else this.#keep(parent, part as Part, value);
    }
    this.#stack.pop();
    this.#spare.push(frame);
  }

  #closeRecord(frame: Frame, codec: RecordCodec<unknown>): unknown {
    const { values } = frame;
    if (codec.ownText !== null) this.#take(frame, codec.ownText, frame.text, '');
    for (const part of codec.parts) {
      if (part.arity !== 'one' || values[part.key] !== undefined) continue;
      const what = part.name === '#text' ? 'no text' : `no ${part.name}`;
      this.#fail(what);
    }
    return codec.close(values);
  }

  /** Gives a text its type and keeps it under its key. */
  #take(frame: Frame, part: Part, raw: string, place: string): void {
    const { codec } = part;
    if (codec.kind !== 'scalar') throw new TypeError(`${part.name} is an element, not a text`);
    const value = codec.parse(raw);
    if (value !== undefined) {
      this.#keep(frame, part, typeof value === 'string' ? detached(value) : value);
      return;
    }
    const isEmpty = codec.emptyIsAbsent && raw.trim() === '';
    if (isEmpty && part.arity === 'optional') return;
    this.#fail(`expected ${codec.expected}, got ${JSON.stringify(shown(raw))}`, place);
  }

  #keep(frame: Frame, part: Part, value: unknown): void {
    if (part.arity === 'many') (frame.values[part.key] as unknown[]).push(value);
    else frame.values[part.key] = value;
  }

  #fail(what: string, place = ''): never {
    const path = this.#stack.map((frame) => (frame.index < 0 ? frame.name : `${frame.name}[${frame.index}]`)).join('.');
    throw new ProtocolError(`${path === '' ? this.#root : path}${place}: ${what}`);
  }
}

/**
 * The same text on its own. What a parser cuts out of a piece of a document keeps the whole piece in memory: a listing's
 * names and URLs would hold on to all of its angle brackets, too.
 */
function detached(text: string): string {
  return text.length < CUT_CHARS_MIN ? text : `.${text}`.slice(1);
}

/** Shorter texts are copied by V8 anyway. */
const CUT_CHARS_MIN = 13;

/** A value as an error message shows it. */
export function shown(raw: string): string {
  return raw.length <= SHOWN_CHARS ? raw : `${raw.slice(0, SHOWN_CHARS)}…`;
}

import { XMLBuilder } from 'fast-xml-parser';
import { SaxesParser, type SaxesTagPlain } from 'saxes';
import { ProtocolError } from '../base/errors.ts';
import type { Codec, Part, RecordCodec } from './codec.ts';

/**
 * XML in and out, by the descriptions of `codec.ts`.
 *
 * Read strictly: saxes rejects truncated, mismatched and malformed text, and values are typed as their elements close, while
 * the document is still arriving. There is no DTD and no entity but the five of XML itself, every dimension has a limit, and
 * whatever is wrong becomes a ProtocolError that names its place. Unknown elements and attributes are skipped, order does not
 * matter: a service may say more tomorrow than it says today.
 */

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

export interface DecodeDocument<T> {
  (body: string | Uint8Array, limits?: Partial<XmlLimits>): T;
  /** As it arrives; gives other work its turn at least every 256 KiB. */
  (body: AsyncIterable<Uint8Array>, limits?: Partial<XmlLimits>): Promise<T>;
}

/** What is fed to the parser at once: bounds how far a limit can be overrun, and the work between two checks. */
const SLICE_BYTES = 64 * 1024;
/** 100,000 entries are 32 MB and half a second: this much is 4 ms of parsing between two turns of the loop. */
const TURN_BYTES = 256 * 1024;
/** A value in an error message. */
const SHOWN_CHARS = 40;

/** The reading function of a document. @throws ProtocolError for anything but a complete, well-formed, fitting document */
export function decoderOf<T>(root: string, codec: RecordCodec<T>): DecodeDocument<T> {
  const decode = (body: string | Uint8Array | AsyncIterable<Uint8Array>, limits?: Partial<XmlLimits>) => {
    const reader = new DocumentReader(root, codec, limits);
    if (typeof body !== 'string' && !(body instanceof Uint8Array)) return readAll(body, reader);
    reader.write(typeof body === 'string' ? Buffer.from(body) : body);
    return reader.end();
  };
  return decode as DecodeDocument<T>;
}

/** The writing function of a document. @throws ProtocolError for text that XML 1.0 cannot carry */
export function encoderOf<T>(root: string, codec: RecordCodec<T>): (document: T) => string {
  const builder = xmlBuilder();
  return (document) => {
    const tree = { '?xml': DECLARATION, [root]: treeOf(codec as RecordCodec<unknown>, document, root) };
    return builder.build(tree);
  };
}

/**
 * The name of the root element, to tell documents apart before one is decoded.
 * @throws ProtocolError where there is none
 */
export function rootName(body: string | Uint8Array): string {
  const parser = new SaxesParser();
  let name: string | null = null;
  refuseForeignXml(parser);
  parser.on('opentagstart', (tag) => {
    name ??= tag.name;
  });
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const decoder = new TextDecoder('utf-8', { fatal: true });
  guarded(() => {
    for (let at = 0; at < bytes.byteLength && name === null; at += 256) {
      parser.write(decoder.decode(bytes.subarray(at, at + 256), { stream: true }));
    }
  });
  if (name === null) throw new ProtocolError('no XML element');
  return name;
}

/** An element being read. */
interface Frame {
  readonly name: string;
  /** Which of a list it is, or -1. */
  readonly index: number;
  readonly codec: Codec<unknown>;
  readonly part: Part | null;
  values: Record<string, unknown>;
  text: string;
}

/** Reads one document, chunk by chunk. After an error it must not be used again. */
export class DocumentReader<T> {
  readonly #root: string;
  readonly #codec: RecordCodec<T>;
  readonly #limits: XmlLimits;
  readonly #parser = new SaxesParser();
  // ignoreBOM false: a byte order mark is taken off, not made part of the text.
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true });
  readonly #stack: Frame[] = [];
  #depth = 0;
  /** Depth of the unknown element being skipped, or 0. */
  #skipFrom = 0;
  #bytes = 0;
  /** Characters given to the parser since it last told us anything: a text, tag or comment that does not end. */
  #silentChars = 0;
  #value: T | undefined;

  constructor(root: string, codec: RecordCodec<T>, limits?: Partial<XmlLimits>) {
    this.#root = root;
    this.#codec = codec;
    this.#limits = { ...XML_LIMITS, ...limits };
    const parser = this.#parser;
    refuseForeignXml(parser);
    parser.on('opentag', (tag) => this.#open(tag));
    parser.on('closetag', () => this.#close());
    parser.on('text', (text) => this.#text(text));
    parser.on('cdata', (text) => this.#text(text));
    parser.on('comment', () => this.#heard());
  }

  write(chunk: Uint8Array): void {
    this.#bytes += chunk.byteLength;
    if (this.#bytes > this.#limits.bytesMax) this.#fail(`longer than ${this.#limits.bytesMax} bytes`);
    guarded(() => {
      for (let at = 0; at < chunk.byteLength; at += SLICE_BYTES) {
        this.#feed(this.#utf8.decode(chunk.subarray(at, at + SLICE_BYTES), { stream: true }));
      }
    });
  }

  /** The document's value, if it is all there. */
  end(): T {
    guarded(() => {
      this.#feed(this.#utf8.decode());
      this.#parser.close();
    });
    if (this.#value === undefined) throw new ProtocolError(`${this.#root}: no such document`);
    return this.#value;
  }

  #feed(characters: string): void {
    this.#silentChars += characters.length;
    this.#parser.write(characters);
    if (this.#silentChars > this.#limits.textMax + SLICE_BYTES)
      this.#fail(`a text longer than ${this.#limits.textMax}`);
  }

  #heard(): void {
    this.#silentChars = 0;
  }

  #open(tag: SaxesTagPlain): void {
    this.#heard();
    this.#depth += 1;
    if (this.#depth > this.#limits.depthMax) this.#fail(`deeper than ${this.#limits.depthMax} elements`);
    if (this.#skipFrom !== 0) return;
    const parent = this.#stack.at(-1);
    if (parent === undefined) {
      if (tag.name !== this.#root) throw new ProtocolError(`expected <${this.#root}>, got <${shown(tag.name)}>`);
      this.#push(tag, this.#codec as Codec<unknown>, null, -1);
      return;
    }
    if (parent.codec.kind === 'scalar') this.#fail(`expected ${parent.codec.expected}, got <${shown(tag.name)}>`);
    const part = (parent.codec as RecordCodec<unknown>).byChild.get(tag.name);
    if (part === undefined) {
      this.#skipFrom = this.#depth;
      return;
    }
    this.#push(tag, part.codec, part, this.#claim(parent, part));
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

  #push(tag: SaxesTagPlain, codec: Codec<unknown>, part: Part | null, index: number): void {
    const frame: Frame = { name: tag.name, index, codec, part, values: {}, text: '' };
    this.#stack.push(frame);
    this.#checkAttributes(tag.attributes);
    if (codec.kind === 'scalar') return;
    for (const child of codec.parts) if (child.arity === 'many') frame.values[child.key] = [];
    if (codec.byAttribute.size === 0) return;
    for (const [name, attribute] of codec.byAttribute) {
      const raw = tag.attributes[name];
      if (raw !== undefined) this.#take(frame, attribute, raw, `.@${name}`);
    }
  }

  #checkAttributes(attributes: Record<string, string>): void {
    let count = 0;
    for (const name in attributes) {
      count += 1;
      if ((attributes[name] as string).length > this.#limits.textMax)
        this.#fail(`attribute ${shown(name)} is too long`);
    }
    if (count > this.#limits.attributesMax) this.#fail(`more than ${this.#limits.attributesMax} attributes`);
  }

  #text(characters: string): void {
    this.#heard();
    const frame = this.#stack.at(-1);
    if (frame === undefined || this.#skipFrom !== 0) return;
    if (frame.codec.kind === 'record' && frame.codec.ownText === null) return;
    frame.text += characters;
    if (frame.text.length > this.#limits.textMax) this.#fail(`a text longer than ${this.#limits.textMax}`);
  }

  #close(): void {
    this.#heard();
    this.#depth -= 1;
    if (this.#skipFrom !== 0) {
      if (this.#depth < this.#skipFrom) this.#skipFrom = 0;
      return;
    }
    const frame = this.#stack.at(-1) as Frame;
    const { codec, part } = frame;
    if (codec.kind === 'scalar') {
      this.#stack.pop();
      const parent = this.#stack.at(-1) as Frame;
      this.#take(parent, part as Part, frame.text, `.${frame.name}${frame.index < 0 ? '' : `[${frame.index}]`}`);
      return;
    }
    const value = this.#closeRecord(frame, codec);
    this.#stack.pop();
    const parent = this.#stack.at(-1);
    if (parent === undefined) this.#value = value as T;
    else this.#keep(parent, part as Part, value);
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
      this.#keep(frame, part, value);
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

async function readAll<T>(chunks: AsyncIterable<Uint8Array>, reader: DocumentReader<T>): Promise<T> {
  let sinceTurn = 0;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.byteLength; at += TURN_BYTES) {
      const piece = chunk.subarray(at, at + TURN_BYTES);
      reader.write(piece);
      sinceTurn += piece.byteLength;
      // Chunks that are already here resolve in microtasks: without this the loop would see none of its turns.
      if (sinceTurn < TURN_BYTES) continue;
      sinceTurn = 0;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  return reader.end();
}

function refuseForeignXml(parser: SaxesParser): void {
  parser.on('error', (error) => {
    throw new ProtocolError(`not well-formed XML: ${error.message}`);
  });
  parser.on('doctype', () => {
    throw new ProtocolError('a document type declaration');
  });
  parser.on('xmldecl', ({ version, encoding }) => {
    if (version !== '1.0') throw new ProtocolError(`XML ${shown(version ?? '')}`);
    if (encoding !== undefined && !/^utf-?8$/i.test(encoding)) throw new ProtocolError(`encoding ${shown(encoding)}`);
  });
}

/** The only errors that leave a parse are ours, and the decoder's about bytes that are not UTF-8. */
function guarded(parse: () => void): void {
  try {
    parse();
  } catch (error) {
    if (error instanceof TypeError && 'code' in error && error.code === 'ERR_ENCODING_INVALID_ENCODED_DATA') {
      throw new ProtocolError('not UTF-8', { cause: error });
    }
    throw error;
  }
}

function shown(raw: string): string {
  return raw.length <= SHOWN_CHARS ? raw : `${raw.slice(0, SHOWN_CHARS)}…`;
}

const DECLARATION = { '@version': '1.0', '@encoding': 'UTF-8', '@standalone': 'yes' };

function xmlBuilder(): XMLBuilder {
  return new XMLBuilder({
    ignoreAttributes: false,
    attributeNamePrefix: '@',
    textNodeName: '#text',
    suppressBooleanAttributes: false,
    // Escaped by `escaped` below: the builder leaves a carriage return alone, which readers then turn into a line feed.
    processEntities: false,
  });
}

/** A value as the builder wants it: attributes with their `@`, lists as arrays, a scalar as its text. */
function treeOf(codec: Codec<unknown>, value: unknown, place: string): unknown {
  if (codec.kind === 'scalar') return escaped(codec.format(value), place);
  const values = codec.open(value);
  const tree: Record<string, unknown> = {};
  for (const part of codec.parts) {
    const held = values[part.key];
    if (held === undefined) continue;
    const inner = `${place}.${part.name}`;
    tree[part.name] =
      part.arity === 'many'
        ? (held as readonly unknown[]).map((entry, index) => treeOf(part.codec, entry, `${inner}[${index}]`))
        : treeOf(part.codec, held, inner);
  }
  return tree;
}

// XML 1.0, section 2.2: neither these characters nor references to them may stand in a document. The names layer maps them
// away before they come here; a caller that did not is told so, and nothing is sent.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/u;
const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
  // Raw, a reader normalises these: CR to LF everywhere, tab and LF to a space in attributes.
  '\r': '&#13;',
  '\n': '&#10;',
  '\t': '&#9;',
};

function escaped(value: string, place: string): string {
  const forbidden = FORBIDDEN.exec(value);
  if (forbidden !== null) {
    const code = value.charCodeAt(forbidden.index).toString(16).toUpperCase().padStart(4, '0');
    throw new ProtocolError(`${place}: U+${code} cannot be written in XML`);
  }
  return /[&<>"'\r\n\t]/.test(value)
    ? value.replace(/[&<>"'\r\n\t]/g, (character) => ESCAPES[character] as string)
    : value;
}

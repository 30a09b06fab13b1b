import type * as fastXmlParser from 'fast-xml-parser';
import type { SaxesParser } from 'saxes';
import { commonJs } from '../base/common-js.ts';
import { ProtocolError } from '../base/errors.ts';
import type { Codec, RecordCodec } from './codec.ts';
import { DocumentReader, shown, XML_LIMITS, type XmlLimits } from './document-reader.ts';
import { saxesParser } from './saxes-parser.ts';
import { Utf8Stream } from './utf8-stream.ts';

const { XMLBuilder } = commonJs('fast-xml-parser') as typeof fastXmlParser;

/**
 * Reads and writes XML by the descriptions of `codec.ts`.
 *
 * Reading is strict: saxes rejects truncated, mismatched and malformed text, and values are parsed as their elements
 * close, while the document still arrives. There are no DTDs, no entities except the five predefined ones, and a limit
 * for every dimension. Every fault becomes a ProtocolError that names its place. Unknown elements and attributes are
 * ignored and order does not matter, so that the service can evolve.
 */

export interface DecodeDocument<T> {
  (body: string | Uint8Array, limits?: Partial<XmlLimits>): T;
  /** Reads the document as it arrives; yields to other work at least every 32 KiB. */
  (body: AsyncIterable<Uint8Array>, limits?: Partial<XmlLimits>): Promise<T>;
}

/** Bytes passed to the parser in one call: the limit of an overrun. */
const SLICE_BYTES = 64 * 1024;
/**
 * Bytes parsed between two turns of the loop. A listing of 100,000 entries is 32 MB and takes half a second or more;
 * this slice takes a third of a millisecond, unless a garbage collection falls into it.
 */
const TURN_BYTES = 16 * 1024;

/**
 * Returns the decoder of a document. @throws ProtocolError unless the document is complete, well-formed and of the
 * right type
 */
export function decoderOf<T>(root: string, codec: RecordCodec<T>): DecodeDocument<T> {
  const decode = (body: string | Uint8Array | AsyncIterable<Uint8Array>, limits?: Partial<XmlLimits>) => {
    const bounds = { ...XML_LIMITS, ...limits };
    const reader = new DocumentReader(root, codec, bounds);
    const parse = new XmlParse(reader, bounds);
    if (typeof body !== 'string' && !(body instanceof Uint8Array)) return readAll(body, parse).then(() => reader.value);
    parse.write(typeof body === 'string' ? Buffer.from(body) : body);
    parse.end();
    return reader.value;
  };
  return decode as DecodeDocument<T>;
}

/** Returns the encoder of a document. @throws ProtocolError for text that XML 1.0 cannot represent */
export function encoderOf<T>(root: string, codec: RecordCodec<T>): (document: T) => string {
  const builder = xmlBuilder();
  return (document) => {
    const tree = { '?xml': DECLARATION, [root]: treeOf(codec as RecordCodec<unknown>, document, root) };
    return builder.build(tree);
  };
}

/**
 * The name of the root element, to distinguish documents before decoding.
 * @throws ProtocolError if there is none
 */
export function rootName(body: string | Uint8Array): string {
  const parser = saxesParser();
  let name: string | null = null;
  refuseForeignXml(parser);
  parser.on('opentagstart', (tag) => {
    name ??= tag.name;
  });
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const utf8 = new Utf8Stream();
  guarded(() => {
    for (let at = 0; at < bytes.byteLength && name === null; at += 256) {
      parser.write(utf8.decode(bytes.subarray(at, at + 256)));
    }
  });
  if (name === null) throw new ProtocolError('no XML element');
  return name;
}

/** Feeds the bytes of a document to its reader as they arrive. */
class XmlParse {
  readonly #limits: XmlLimits;
  readonly #parser = saxesParser();
  readonly #utf8 = new Utf8Stream();
  #bytes = 0;
  /** Characters parsed since the last parser event: the length of an unterminated text, tag or comment. */
  #silentChars = 0;

  constructor(reader: Pick<DocumentReader<unknown>, 'open' | 'text' | 'close'>, limits: XmlLimits) {
    this.#limits = limits;
    const parser = this.#parser;
    refuseForeignXml(parser);
    parser.on('opentag', (tag) => {
      this.#silentChars = 0;
      reader.open(tag.name, tag.attributes);
    });
    parser.on('closetag', () => {
      this.#silentChars = 0;
      reader.close();
    });
    const text = (characters: string) => {
      this.#silentChars = 0;
      reader.text(characters);
    };
    parser.on('text', text);
    parser.on('cdata', text);
  }

  write(chunk: Uint8Array): void {
    this.#bytes += chunk.byteLength;
    if (this.#bytes > this.#limits.bytesMax) throw new ProtocolError(`longer than ${this.#limits.bytesMax} bytes`);
    guarded(() => {
      for (let at = 0; at < chunk.byteLength; at += SLICE_BYTES) {
        this.#feed(this.#utf8.decode(chunk.subarray(at, at + SLICE_BYTES)));
      }
    });
  }

  end(): void {
    guarded(() => {
      this.#utf8.end();
      this.#parser.close();
    });
  }

  #feed(characters: string): void {
    this.#silentChars += characters.length;
    this.#parser.write(characters);
    if (this.#silentChars > this.#limits.textMax + SLICE_BYTES) {
      throw new ProtocolError(`a text, tag or comment longer than ${this.#limits.textMax}`);
    }
  }
}

async function readAll(chunks: AsyncIterable<Uint8Array>, parse: XmlParse): Promise<void> {
  let sinceTurn = 0;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.byteLength; at += TURN_BYTES) {
      const slice = chunk.subarray(at, at + TURN_BYTES);
      parse.write(slice);
      sinceTurn += slice.byteLength;
      // Available chunks resolve in microtasks: without this the loop could not run.
      if (sinceTurn < TURN_BYTES) continue;
      sinceTurn = 0;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  parse.end();
}

/** Rejects content that no document of the service has: errors, document types, other encodings and versions of XML. */
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

/** Only this project's errors may leave the parser; converts the decoder's error for invalid UTF-8. */
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

const DECLARATION = { '@version': '1.0', '@encoding': 'UTF-8', '@standalone': 'yes' };

function xmlBuilder(): fastXmlParser.XMLBuilder {
  return new XMLBuilder({
    ignoreAttributes: false,
    attributeNamePrefix: '@',
    textNodeName: '#text',
    suppressBooleanAttributes: false,
    // `escaped` below does this: the builder leaves carriage returns unescaped, which readers then turn into line
    // feeds.
    processEntities: false,
  });
}

/** Converts a value to the builder's form: attributes with `@`, lists as arrays, scalars as text. */
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
// away before they come here; otherwise the caller gets an error, and nothing is sent.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/u;
const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
  // Unescaped, readers normalise these: CR to LF everywhere, tab and LF to a space in attributes.
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

import { formatInstant, parseInstant } from './instant.ts';

/**
 * What a document looks like, said once for both directions: `xml.ts` reads and builds by these descriptions.
 *
 * A **scalar** is an element or attribute whose text has a type; a **record** is an element with named parts. A record's
 * parts are named by their source: `size` is a child element, `@type` an attribute, `#text` the element's own text.
 * Parts are written in the order in which they are described; they are read in any order.
 */
export type Codec<T> = ScalarCodec<T> | RecordCodec<T>;

export interface ScalarCodec<T> {
  readonly kind: 'scalar';
  /** For the error: `expected an integer, got "12.5"`. */
  readonly expected: string;
  /** Whether an empty element counts as none, where none is allowed: an empty text is a text, an empty number is not one. */
  readonly emptyIsAbsent: boolean;
  /** The value, or undefined for a text that has none. */
  readonly parse: (text: string) => T | undefined;
  readonly format: (value: T) => string;
}

export interface RecordCodec<T> {
  readonly kind: 'record';
  readonly parts: readonly Part[];
  readonly byChild: ReadonlyMap<string, Part>;
  /** By their names without `@`. */
  readonly attributes: readonly { readonly name: string; readonly part: Part }[];
  readonly ownText: Part | null;
  /** Those that have to come. */
  readonly required: readonly Part[];
  /** Those that come any number of times. */
  readonly lists: readonly Part[];
  /** From the parts' values by key, all required ones being there, to the value, and back. */
  readonly close: (values: Record<string, unknown>) => T;
  readonly open: (value: T) => Record<string, unknown>;
}

export interface Part {
  readonly key: string;
  /** Of the element, of the attribute with its `@`, or `#text`. */
  readonly name: string;
  /** Its place among the parts of its record. */
  readonly position: number;
  readonly arity: 'one' | 'optional' | 'many';
  readonly codec: Codec<unknown>;
}

/** A codec and how often it may come. A bare codec means exactly once. */
export type Field<T> = Codec<T> | CountedField<T>;

interface CountedField<T> {
  readonly kind: 'counted';
  readonly arity: 'optional' | 'many';
  readonly codec: Codec<unknown>;
  /** Never there: it only carries the type. */
  readonly value?: T;
}

type FieldsOf<T> = { readonly [K in keyof T]-?: readonly [source: string, field: Field<T[K]>] };

/** The same with the types of its values forgotten. */
type Fields = Readonly<Record<string, readonly [source: string, field: Field<unknown>]>>;

/** Any text, as it is: never trimmed, `007` stays `007` and ` a ` stays ` a `. */
export const text: ScalarCodec<string> = scalar('a text', {
  emptyIsAbsent: false,
  parse: (raw) => raw,
  format: (value) => value,
});

/** An address or a number-like word: not empty, white space round it is not part of it. */
export const word: ScalarCodec<string> = scalar('a word', {
  emptyIsAbsent: true,
  parse: (raw) => {
    const trimmed = raw.trim();
    return /^\S+$/.test(trimmed) ? trimmed : undefined;
  },
  format: (value) => value,
});

/** A whole number that a double holds exactly. */
export const integer: ScalarCodec<number> = scalar('an integer', {
  emptyIsAbsent: true,
  parse: (raw) => {
    const value = wholeNumber(raw);
    return Number.isSafeInteger(value) ? value + 0 : undefined;
  },
  format: (value) => String(value),
});

/** A whole number, or the nearest that a double holds exactly: without a limit is often said as 2^63 - 1. */
export const roomBytes: ScalarCodec<number> = scalar('an integer', {
  emptyIsAbsent: true,
  parse: (raw) => {
    const value = wholeNumber(raw);
    if (Number.isNaN(value)) return undefined;
    return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(value, Number.MAX_SAFE_INTEGER)) + 0;
  },
  format: (value) => String(value),
});

/** NaN for anything else; beyond what a double holds exactly the nearest that it holds. */
function wholeNumber(raw: string): number {
  const digits = raw.trim();
  return /^[+-]?\d{1,20}$/.test(digits) ? Number(digits) : Number.NaN;
}

/** A moment, in milliseconds since the epoch. */
export const instant: ScalarCodec<number> = scalar('a dateTime', {
  emptyIsAbsent: true,
  parse: (raw) => parseInstant(raw.trim()) ?? undefined,
  format: (value) => formatInstant(value),
});

/** xs:boolean; written as `true` or `false`. */
export const flag: ScalarCodec<boolean> = scalar('true or false', {
  emptyIsAbsent: true,
  parse: (raw) => FLAGS.get(raw.trim()),
  format: (value) => String(value),
});

const FLAGS: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['1', true],
  ['false', false],
  ['0', false],
]);

/** At most once; the key is absent where it does not come. */
export function optional<T>(codec: Codec<T>): Field<T | undefined> {
  return { kind: 'counted', arity: 'optional', codec: codec as Codec<unknown> };
}

/** Any number of times, also none or one: always an array. XML does not tell a list of one from a single element. */
export function many<T>(codec: Codec<T>): Field<readonly T[]> {
  return { kind: 'counted', arity: 'many', codec: codec as Codec<unknown> };
}

/** An element with named parts. */
export function record<T extends object>(fields: FieldsOf<T>): RecordCodec<T> {
  return recordCodec(partsOf(fields as Fields), {
    close: (values) => values as T,
    open: (value) => value as Record<string, unknown>,
  });
}

/** An element of which one part is all that matters: `<sharing enabled="true"/>` as a boolean. */
export function only<T>(source: string, codec: Codec<T>): RecordCodec<T> {
  return recordCodec(partsOf({ value: [source, codec as Codec<unknown>] }), {
    close: (values) => values.value as T,
    open: (value) => ({ value }),
  });
}

function recordCodec<T>(parts: readonly Part[], form: Pick<RecordCodec<T>, 'open' | 'close'>): RecordCodec<T> {
  const attributes = parts.filter((part) => part.name.startsWith('@'));
  const children = parts.filter((part) => part.name !== '#text' && !attributes.includes(part));
  return {
    kind: 'record',
    parts,
    byChild: new Map(children.map((part) => [part.name, part])),
    attributes: attributes.map((part) => ({ name: part.name.slice(1), part })),
    ownText: parts.find((part) => part.name === '#text') ?? null,
    required: parts.filter((part) => part.arity === 'one'),
    lists: parts.filter((part) => part.arity === 'many'),
    ...form,
  };
}

function partsOf(fields: Fields): readonly Part[] {
  return Object.entries(fields).map(([key, [name, field]], position) =>
    field.kind === 'counted'
      ? { key, name, position, arity: field.arity, codec: field.codec }
      : { key, name, position, arity: 'one', codec: field },
  );
}

function scalar<T>(expected: string, rest: Omit<ScalarCodec<T>, 'kind' | 'expected'>): ScalarCodec<T> {
  return { kind: 'scalar', expected, ...rest };
}

import { formatInstant, parseInstant } from './instant.ts';

/**
 * Document schemas, shared by both directions: `xml.ts` reads and builds by these descriptions.
 *
 * A **scalar** is an element or attribute whose text has a type; a **record** is an element with named parts. Parts are
 * named by their source: `size` is a child element, `@type` an attribute, `#text` the element's own text. Parts are
 * written in the order of their description and read in any order.
 */
export type Codec<T> = ScalarCodec<T> | RecordCodec<T>;

export interface ScalarCodec<T> {
  readonly kind: 'scalar';
  /** For the error: `expected an integer, got "12.5"`. */
  readonly expected: string;
  /** Whether an empty optional element counts as absent: an empty text is a text, an empty number is not a number. */
  readonly emptyIsAbsent: boolean;
  /** The value, or undefined for an invalid text. */
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
  /** Required parts. */
  readonly required: readonly Part[];
  /** Repeatable parts. */
  readonly lists: readonly Part[];
  /** Converts the parts' values by key, with all required ones, to the value; `open` converts back. */
  readonly close: (values: Record<string, unknown>) => T;
  readonly open: (value: T) => Record<string, unknown>;
}

export interface Part {
  readonly key: string;
  /** Name of the element, of the attribute with its `@`, or `#text`. */
  readonly name: string;
  /** Index of the field among the parts of its record. */
  readonly position: number;
  readonly arity: 'one' | 'optional' | 'many';
  readonly codec: Codec<unknown>;
}

/** A codec and its number of occurrences. A bare codec means exactly once. */
export type Field<T> = Codec<T> | CountedField<T>;

interface CountedField<T> {
  readonly kind: 'counted';
  readonly arity: 'optional' | 'many';
  readonly codec: Codec<unknown>;
  /** Never set: it only carries the type. */
  readonly value?: T;
}

type FieldsOf<T> = { readonly [K in keyof T]-?: readonly [source: string, field: Field<T[K]>] };

/** As `FieldsOf`, for code that does not need the types of the values. */
type Fields = Readonly<Record<string, readonly [source: string, field: Field<unknown>]>>;

/** Any text, unchanged: never trimmed, `007` stays `007` and ` a ` stays ` a `. */
export const text: ScalarCodec<string> = scalar('a text', {
  emptyIsAbsent: false,
  parse: (raw) => raw,
  format: (value) => value,
});

/** A URL or another word: not empty; surrounding white space is ignored. */
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

/** A whole number, rounded to the nearest double: services often write 2^63 - 1 for "unlimited". */
export const roomBytes: ScalarCodec<number> = scalar('an integer', {
  emptyIsAbsent: true,
  parse: (raw) => {
    const value = wholeNumber(raw);
    if (Number.isNaN(value)) return undefined;
    return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(value, Number.MAX_SAFE_INTEGER)) + 0;
  },
  format: (value) => String(value),
});

/** NaN for anything else; larger numbers are rounded to the nearest double. */
function wholeNumber(raw: string): number {
  const digits = raw.trim();
  return /^[+-]?\d{1,20}$/.test(digits) ? Number(digits) : Number.NaN;
}

/** A time, in milliseconds since the epoch. */
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

/** At most once; the key is absent if the part is. */
export function optional<T>(codec: Codec<T>): Field<T | undefined> {
  return { kind: 'counted', arity: 'optional', codec: codec as Codec<unknown> };
}

/**
 * Any number of times, including zero: always an array. XML does not distinguish a list of one from a single element.
 */
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

/** An element with one significant part: `<sharing enabled="true"/>` as a boolean. */
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

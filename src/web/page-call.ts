import type { Conflict, DiscardedChange, FolderEntry } from '../control/status-model.ts';

/**
 * What the page can ask its program to do: one POST for each call, with these parameters as JSON. The page and the program are of one
 * version, so this is no interface for others.
 */
export const CALLS = {
  signIn: {
    url: 'text',
    username: 'text',
    password: 'text',
    application: 'text',
    accessKeyId: 'text',
    privateAccessKey: 'text',
    insecure: 'switch',
  },
  signOutLoss: { account: 'text' },
  signOut: { account: 'text', forget: 'switch' },
  directories: { path: 'text?' },
  makeDirectory: { path: 'text' },
  mount: { account: 'text', directory: 'text' },
  unmount: { account: 'text' },
  installService: { account: 'text', directory: 'text' },
  /** Whether a systemd unit mounts there at each sign-in. */
  service: { directory: 'text' },
  removeService: { directory: 'text' },
  pause: { account: 'text', forMs: 'number?' },
  resume: { account: 'text' },
  push: { account: 'text' },
  refresh: { account: 'text', accept: 'switch' },
  retry: { account: 'text', path: 'text?' },
  discardLoss: { account: 'text', path: 'text' },
  discard: { account: 'text', path: 'text' },
  conflicts: { account: 'text' },
  keep: { account: 'text', path: 'text', side: 'text' },
  folder: { account: 'text', path: 'text', after: 'text?' },
  file: { account: 'text', path: 'text' },
  pin: { account: 'text', path: 'text' },
  unpin: { account: 'text', path: 'text' },
  evict: { account: 'text', path: 'text' },
  link: { account: 'text', path: 'text', on: 'switch' },
  restore: { account: 'text', path: 'text', version: 'text' },
  trash: { account: 'text' },
  trashRestore: { account: 'text', item: 'text' },
  trashEmpty: { account: 'text' },
} as const satisfies Readonly<Record<string, Shape>>;

/** Calls that answer with bytes. */
export const BYTES_CALLS = {
  /** A file as it is in the mount. */
  content: { account: 'text', path: 'text' },
  version: { account: 'text', path: 'text', version: 'text' },
  /** A scaled JPEG picture; `version` null: of the newest version. */
  picture: { account: 'text', path: 'text', version: 'text?' },
} as const satisfies Readonly<Record<string, Shape>>;

type Kind = 'text' | 'text?' | 'number?' | 'switch';
type Shape = Readonly<Record<string, Kind>>;
type ValueOf<K extends Kind> = K extends 'text'
  ? string
  : K extends 'text?'
    ? string | null
    : K extends 'switch'
      ? boolean
      : number | null;
type ValuesOf<S extends Shape> = { readonly [Name in keyof S]: ValueOf<S[Name]> };

export type CallName = keyof typeof CALLS;
export type BytesCallName = keyof typeof BYTES_CALLS;
export type CallParams<Name extends CallName> = ValuesOf<(typeof CALLS)[Name]>;
export type BytesCallParams<Name extends BytesCallName> = ValuesOf<(typeof BYTES_CALLS)[Name]>;

/** What a command printed. `isDone` false: it ended with an exit code that is not 0. */
export interface Said {
  readonly said: string;
  readonly isDone: boolean;
}

/** Results of the calls that return more than a sentence. */
interface Answers {
  readonly signOutLoss: { readonly pending: number; readonly localOnly: number };
  readonly directories: Directories;
  readonly service: { readonly isInstalled: boolean };
  readonly discardLoss: readonly DiscardedChange[];
  readonly conflicts: { readonly conflicts: readonly Conflict[]; readonly count: number };
  readonly folder: FolderView;
  readonly file: FileView;
  readonly link: { readonly link: string | null };
  readonly trash: { readonly items: readonly TrashEntry[] };
}
export type CallResult<Name extends CallName> = Name extends keyof Answers ? Answers[Name] : Said;

/** Directories of this machine, to choose a mount point. */
export interface Directories {
  readonly path: string;
  /** null: the top. */
  readonly parent: string | null;
  readonly names: readonly string[];
  readonly isEmpty: boolean;
}

export interface FolderView {
  readonly path: string;
  readonly entries: readonly FolderEntry[];
  /** The `after` of the next page; null at the end. */
  readonly next: string | null;
}

export interface FileView {
  readonly path: string;
  readonly isPending: boolean;
  readonly link: string | null;
  /** Newest first. */
  readonly versions: readonly FileVersion[];
}

export interface FileVersion {
  readonly name: string;
  readonly sizeBytes: number;
  readonly savedMs: number | null;
}

export interface TrashEntry {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly sizeBytes: number | null;
  readonly savedMs: number | null;
}

/** Sends the bytes of an answer. They are attachments: no browser shows them as a page. */
export type SendBytes = (type: BytesType, chunks: AsyncIterable<Uint8Array>) => Promise<void>;
export type BytesType = 'application/octet-stream' | 'image/jpeg';

export type PageActions = {
  readonly [Name in CallName]: (params: CallParams<Name>, signal: AbortSignal) => Promise<CallResult<Name>>;
};
export type BytesActions = {
  readonly [Name in BytesCallName]: (params: BytesCallParams<Name>, send: SendBytes) => Promise<void>;
};

/** @returns the parameters; null if they do not have that shape */
export function paramsOf(shape: Shape, given: unknown): Readonly<Record<string, unknown>> | null {
  if (typeof given !== 'object' || given === null) return null;
  const values = given as Readonly<Record<string, unknown>>;
  const fits = Object.entries(shape).every(([name, kind]) => isOf(kind, values[name] ?? null));
  return fits ? Object.fromEntries(Object.keys(shape).map((name) => [name, values[name] ?? null])) : null;
}

function isOf(kind: Kind, value: unknown): boolean {
  if (value === null) return kind.endsWith('?');
  const type = { text: 'string', 'text?': 'string', 'number?': 'number', switch: 'boolean' }[kind];
  // No name of a file or an account contains NUL.
  return typeof value === type && !(typeof value === 'string' && value.includes('\0'));
}

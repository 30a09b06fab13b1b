import { createHash } from 'node:crypto';
import { FsError } from '../base/errors.ts';
import { namePattern } from '../base/name-pattern.ts';

/**
 * Remote name ⇄ file name.
 *
 * The service allows what Unix does not (`/`, `.`, `..`, an empty name, more than 255 bytes), Unix allows what XML does not
 * (control characters). Each such character is shown as one that looks like it, and a name that holds the look-alike itself
 * gets a QUOTE before it, so that the two never meet:
 *
 *   remote `AC/DC`  ⇄ file `AC／DC`        remote `AC／DC` ⇄ file `AC‛／DC`
 *   remote `.`      ⇄ file `．`            remote `．`     ⇄ file `‛．`
 *   remote ``       ⇄ file `␢`
 *   file `bell\x07` ⇄ remote `bell␇`       file `bell␇`    ⇄ remote `bell‛␇`
 *
 * A run of QUOTEs matters only right before one of these characters; there it is doubled on the side that needs the room, so
 * both directions are functions of the name alone and exact inverses (test/tree/names.test.ts). Two things cannot be undone
 * from the name: the cut of an over-long one and the suffix of a duplicate. Both are kept in `RemoteFacet.shownAs`.
 */

const QUOTE = '\u201b';
const SLASH_SHOWN = '\uff0f';

/** Names that are special as a whole: what the service has, and what is shown. */
const WHOLE: ReadonlyMap<string, string> = new Map([
  ['', '\u2422'],
  ['.', '\uff0e'],
  ['..', '\uff0e\uff0e'],
]);
const WHOLE_BACK: ReadonlyMap<string, string> = new Map([...WHOLE].map(([remote, shown]) => [shown, remote]));

/** What a file name can hold and XML 1.0 cannot (section 2.2), or does not keep (carriage return, section 2.11). */
const UNSENDABLE: ReadonlyMap<string, string> = new Map([
  ...[...Array(0x20).keys()]
    .filter((code) => code !== 0 && code !== 0x09 && code !== 0x0a)
    .map((code) => [String.fromCharCode(code), String.fromCharCode(0x2400 + code)] as const),
  ['\ufffe', '\u2425'],
  ['\uffff', '\u2426'],
]);
const UNSENDABLE_BACK: ReadonlyMap<string, string> = new Map([...UNSENDABLE].map(([raw, sent]) => [sent, raw]));

const WHOLE_SHOWN = new RegExp(`^(${QUOTE}*)(${[...WHOLE.values()].join('|')})$`, 'u');
const IN_FILE_NAME = new RegExp(
  `(${QUOTE}*)([${SLASH_SHOWN}${classOf([...UNSENDABLE.keys(), ...UNSENDABLE.values()])}])`,
  'gu',
);
const IN_REMOTE_NAME = new RegExp(`(${QUOTE}*)([/${SLASH_SHOWN}${classOf([...UNSENDABLE.values()])}])`, 'gu');
/** What can stand in no XML document, should it come all the same. */
const NEVER_SENT = new RegExp(`[\\0${classOf([...UNSENDABLE.keys()])}]`, 'gu');

/** NAME_MAX of Linux, in bytes of UTF-8. */
export const NAME_BYTES_MAX = 255;

/**
 * Names that are made by programs for this machine alone and mean nothing, or harm, on another: they never travel. What is renamed
 * to another name does from then on: a program that saves `_notes` by way of `._notes.x7Gq2d` means the file and no such name.
 */
export const LOCAL_NAMES: readonly string[] = [
  // of file systems
  '.fuse_hidden*',
  '.nfs*',
  // of editors and office programs
  '.~lock.*#',
  '.#*',
  '#*#',
  '.*.sw[a-p]',
  '.*.kate-swp',
  '~$*',
  'lu*.tmp',
  // of desktops
  '.DS_Store',
  '._*',
  '.AppleDouble',
  '.Spotlight-V100',
  '.Trashes',
  '.TemporaryItems',
  '.fseventsd',
  '.localized',
  'Icon\r',
  'Thumbs.db',
  'ehthumbs.db',
  'desktop.ini',
  '.directory',
  '.goutputstream-*',
  '.xdp-*',
  // of browsers and other synchronizers
  '*.crdownload',
  '.syncthing.*.tmp',
  '~syncthing~*.tmp',
  '.unison.*.unison.tmp',
];

/** Those of programs that did not keep the patterns in the store (`released-names`). */
export const FORMER_LOCAL_NAMES: readonly string[] = ['*.swp', '.*.sw?'];

export class Names {
  readonly #local: RegExp;

  /** `localNames`: patterns of names that never travel (`namePattern`). */
  constructor(options: { readonly localNames: readonly string[] } = { localNames: LOCAL_NAMES }) {
    const patterns = options.localNames.map(namePattern);
    this.#local = patterns.length === 0 ? /(?!)/ : new RegExp(`^(?:${patterns.join('|')})$`, 'isu');
  }

  /**
   * The file name for a resource called `remoteName`: at most 255 bytes, free of what Unix forbids. Where `taken` says that
   * the plain one is in use, a number is put before the extension until it is not.
   */
  toFileName(remoteName: string, taken: (fileName: string) => boolean = () => false): string {
    const plain = shorten(shown(remoteName));
    return taken(plain) ? this.distinct(plain, taken) : plain;
  }

  /** `fileName` with the first number that makes it free: `photo (2).jpg`. */
  distinct(fileName: string, taken: (fileName: string) => boolean): string {
    const { stem, extension } = split(fileName);
    for (let number = 2; ; number++) {
      const suffix = ` (${number})${extension}`;
      const candidate = cut(stem, NAME_BYTES_MAX - Buffer.byteLength(suffix)) + suffix;
      if (!taken(candidate)) return candidate;
    }
  }

  /** The name under which a file called `fileName` is kept by the service. Inverse of `toFileName`. */
  toRemoteName(fileName: string): string {
    const whole = WHOLE_SHOWN.exec(fileName);
    if (whole !== null) {
      const [, quotes = '', symbol = ''] = whole;
      return quotes === '' ? (WHOLE_BACK.get(symbol) ?? symbol) : quotes.slice(1) + symbol;
    }
    return fileName.replace(IN_FILE_NAME, (_match, quotes: string, character: string) => {
      if (character === SLASH_SHOWN) return half(quotes) + (quotes.length % 2 === 0 ? '/' : SLASH_SHOWN);
      const sent = UNSENDABLE.get(character);
      return sent !== undefined ? quotes + quotes + sent : `${quotes}${quotes}${QUOTE}${character}`;
    });
  }

  /** Whether files of this name are kept on this machine only. */
  staysLocal(fileName: string): boolean {
    return this.#local.test(fileName);
  }

  /**
   * Whether a file may be called so.
   *
   * @throws FsError ENAMETOOLONG · EILSEQ for a name that is not UTF-8 · EINVAL for one that is no name · EPERM for
   * `.Trash-*`, so that file managers delete into the trash of the service instead of uploading their own
   */
  check(fileName: string): void {
    if (Buffer.byteLength(fileName) > NAME_BYTES_MAX) throw new FsError('ENAMETOOLONG');
    if (fileName === '' || fileName === '.' || fileName === '..' || /[/\0]/.test(fileName)) throw new FsError('EINVAL');
    if (/[\ud800-\udfff]/u.test(fileName)) throw new FsError('EILSEQ');
    if (fileName.startsWith('.Trash-'))
      throw new FsError('EPERM', 'deleted files belong into the trash of the service');
  }
}

/** A remote name as a file name of any length. */
function shown(remoteName: string): string {
  const special = WHOLE.get(remoteName);
  if (special !== undefined) return special;
  if (WHOLE_SHOWN.test(remoteName)) return QUOTE + remoteName;
  const sendable = remoteName
    .replace(/[\ud800-\udfff]/gu, '\ufffd')
    .replace(NEVER_SENT, (character) => UNSENDABLE.get(character) ?? '\u2400');
  return sendable.replace(IN_REMOTE_NAME, (_match, quotes: string, character: string) => {
    if (character === '/') return quotes + quotes + SLASH_SHOWN;
    if (character === SLASH_SHOWN) return quotes + quotes + QUOTE + SLASH_SHOWN;
    return half(quotes) + (quotes.length % 2 === 0 ? UNSENDABLE_BACK.get(character) : character);
  });
}

/** Cuts a name of more than 255 bytes; a digest of all of it keeps names apart that begin alike. */
function shorten(name: string): string {
  if (Buffer.byteLength(name) <= NAME_BYTES_MAX) return name;
  const { stem, extension } = split(name);
  const suffix = `~${createHash('sha256').update(name).digest('hex').slice(0, 8)}${extension}`;
  return cut(stem, NAME_BYTES_MAX - Buffer.byteLength(suffix)) + suffix;
}

/** The longest beginning of `text` with at most `bytesMax` bytes that ends between two characters. */
function cut(text: string, bytesMax: number): string {
  if (Buffer.byteLength(text) <= bytesMax) return text;
  let bytes = 0;
  let end = 0;
  for (const character of text) {
    bytes += Buffer.byteLength(character);
    if (bytes > bytesMax) break;
    end += character.length;
  }
  return text.slice(0, end);
}

function split(name: string): { readonly stem: string; readonly extension: string } {
  const dot = name.lastIndexOf('.');
  if (dot <= 0 || name.length - dot > 16) return { stem: name, extension: '' };
  return { stem: name.slice(0, dot), extension: name.slice(dot) };
}

function half(quotes: string): string {
  return quotes.slice(0, Math.floor(quotes.length / 2));
}

function classOf(characters: readonly string[]): string {
  return characters.map((character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
}

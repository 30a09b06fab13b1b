import { createHash } from 'node:crypto';
import { FsError } from '../base/errors.ts';
import { namePattern } from '../base/name-pattern.ts';

/**
 * Remote name ⇄ file name.
 *
 * The service allows names that Unix does not (`/`, `.`, `..`, an empty name, more than 255 bytes); Unix allows
 * characters that XML does not (control characters). Each such character is replaced by a look-alike. A name that
 * contains the look-alike itself gets a QUOTE before it, so that the two never collide:
 *
 *   remote `AC/DC`  ⇄ file `AC／DC`        remote `AC／DC` ⇄ file `AC‛／DC`
 *   remote `.`      ⇄ file `．`            remote `．`     ⇄ file `‛．`
 *   remote ``       ⇄ file `␢`
 *   file `bell\x07` ⇄ remote `bell␇`       file `bell␇`    ⇄ remote `bell‛␇`
 *
 * A run of QUOTEs is significant only directly before one of these characters, where it is doubled. So both directions
 * are functions of the name alone and exact inverses (test/tree/names.test.ts). Two changes cannot be reversed from the
 * name: the truncation of a long one and the suffix of a duplicate. Both are kept in `RemoteFacet.shownAs`.
 */

const QUOTE = '\u201b';
const SLASH_SHOWN = '\uff0f';

/** Special whole names: remote name to file name. */
const WHOLE: ReadonlyMap<string, string> = new Map([
  ['', '\u2422'],
  ['.', '\uff0e'],
  ['..', '\uff0e\uff0e'],
]);
const WHOLE_BACK: ReadonlyMap<string, string> = new Map([...WHOLE].map(([remote, shown]) => [shown, remote]));

/**
 * Characters allowed in file names, but not in XML 1.0 (section 2.2), or not preserved by it (carriage return, section
 * 2.11).
 */
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
/** Characters that no XML document may contain, in case one arrives. */
const NEVER_SENT = new RegExp(`[\\0${classOf([...UNSENDABLE.keys()])}]`, 'gu');

/** NAME_MAX of Linux, in bytes of UTF-8. */
export const NAME_BYTES_MAX = 255;

/** Most names: they are equal on both sides. `.` and `..` are not matched. */
const PLAIN = new RegExp(`^(?!\\.\\.?$)[ -.0-~]{1,${NAME_BYTES_MAX}}$`);

/**
 * Names of machine-specific files that are useless or harmful elsewhere: they are never pushed. A rename to another
 * name makes the file travel: a program that saves `_notes` by way of `._notes.x7Gq2d` means the file.
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

/** The patterns of program versions that did not store them (`released-names`). */
export const FORMER_LOCAL_NAMES: readonly string[] = ['*.swp', '.*.sw?'];

export class Names {
  readonly #local: RegExp;

  /** @param options.localNames patterns of names that are never pushed (`namePattern`) */
  constructor(options: { readonly localNames: readonly string[] } = { localNames: LOCAL_NAMES }) {
    const patterns = options.localNames.map(namePattern);
    this.#local = patterns.length === 0 ? /(?!)/ : new RegExp(`^(?:${patterns.join('|')})$`, 'isu');
  }

  /**
   * The file name for `remoteName`: at most 255 bytes, without characters that Unix forbids. While `taken` reports the
   * name as in use, a number is inserted before the extension.
   */
  toFileName(remoteName: string, taken: (fileName: string) => boolean = () => false): string {
    const plain = PLAIN.test(remoteName) ? remoteName : shorten(shown(remoteName));
    return taken(plain) ? this.distinct(plain, taken) : plain;
  }

  /** `fileName` with the first free number: `photo (2).jpg`. */
  distinct(fileName: string, taken: (fileName: string) => boolean): string {
    const { stem, extension } = split(fileName);
    for (let number = 2; ; number++) {
      const suffix = ` (${number})${extension}`;
      const candidate = cut(stem, NAME_BYTES_MAX - Buffer.byteLength(suffix)) + suffix;
      if (!taken(candidate)) return candidate;
    }
  }

  /** The remote name of a file called `fileName`. Inverse of `toFileName`. */
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
   * Validates a file name.
   *
   * @throws FsError ENAMETOOLONG · EILSEQ not UTF-8 · EINVAL not a valid name · EPERM for `.Trash-*`, so that file
   * managers delete into the trash of the service instead of uploading their own
   */
  check(fileName: string): void {
    if (Buffer.byteLength(fileName) > NAME_BYTES_MAX) throw new FsError('ENAMETOOLONG');
    if (fileName === '' || fileName === '.' || fileName === '..' || /[/\0]/.test(fileName)) throw new FsError('EINVAL');
    if (/[\ud800-\udfff]/u.test(fileName)) throw new FsError('EILSEQ');
    if (fileName.startsWith('.Trash-')) throw new FsError('EPERM', 'deleted files belong in the trash of the service');
  }
}

/** Maps a remote name to a file name of any length. */
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

/** Truncates a name of more than 255 bytes; a digest of the whole name keeps names with one prefix apart. */
function shorten(name: string): string {
  if (Buffer.byteLength(name) <= NAME_BYTES_MAX) return name;
  const { stem, extension } = split(name);
  const suffix = `~${createHash('sha256').update(name).digest('hex').slice(0, 8)}${extension}`;
  return cut(stem, NAME_BYTES_MAX - Buffer.byteLength(suffix)) + suffix;
}

/** The longest prefix of `text` with at most `bytesMax` bytes, cut between characters. */
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

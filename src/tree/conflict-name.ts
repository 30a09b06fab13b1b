/** Whose bytes a conflicted copy holds: those of the machine that made the copy, or those of another client. */
export type CopiedBytes = 'own' | 'others';

/**
 * The name of a conflicted copy. `report (conflicted copy 2026-11-20 laptop).pdf` holds bytes that were saved on `laptop`;
 * `report (conflicted copy 2026-11-20 not from laptop).pdf` holds bytes of another client, which `laptop` does not know by name.
 * Further copies have a number.
 */
export function conflictName(
  name: string,
  {
    nowMs,
    host,
    bytes,
    isTaken,
  }: {
    readonly nowMs: number;
    /** The machine that makes the copy. */
    readonly host: string;
    readonly bytes: CopiedBytes;
    readonly isTaken: (name: string) => boolean;
  },
): string {
  const dot = name.lastIndexOf('.');
  const cut = dot <= 0 || name.length - dot > EXTENSION_CHARACTERS_MAX ? name.length : dot;
  const day = new Date(nowMs).toISOString().slice(0, 10);
  const extension = name.slice(cut);
  const from = bytes === 'own' ? host : `${NOT_FROM}${host}`;
  for (let number = 1; ; number++) {
    const mark = ` ${MARK}${day} ${from}${number === 1 ? '' : ` ${number}`})`;
    const stem = fitting(name.slice(0, cut), NAME_BYTES_MAX - Buffer.byteLength(mark + extension));
    const candidate = `${stem}${mark}${extension}`;
    if (!isTaken(candidate)) return candidate;
  }
}

/** The parts of the name of a conflicted copy. */
export interface ConflictMark {
  /** The name of the file that it is a copy of; shortened if that was longer than fits. */
  readonly original: string;
  /** `2026-11-20`, UTC: when the copy was made. */
  readonly day: string;
  /** The machine that the name mentions. */
  readonly host: string;
  /** Whether the bytes were saved on that machine. */
  readonly bytes: CopiedBytes;
}

/** null for any other name. */
export function conflictMark(name: string): ConflictMark | null {
  const at = name.lastIndexOf(` ${MARK}`);
  if (at < 0) return null;
  const found = /^(\d{4}-\d\d-\d\d) (.+?)(?: \d+)?\)(\.[^.]*)?$/su.exec(name.slice(at + 1 + MARK.length));
  if (found === null) return null;
  const [, day = '', from = '', extension = ''] = found;
  const isOthers = from.startsWith(NOT_FROM);
  return {
    original: `${name.slice(0, at)}${extension}`,
    day,
    host: isOthers ? from.slice(NOT_FROM.length) : from,
    bytes: isOthers ? 'others' : 'own',
  };
}

/** The beginning of the names of all conflicted copies of a file, without its extension. */
export function conflictPrefix(name: string): string {
  const dot = name.lastIndexOf('.');
  const cut = dot <= 0 || name.length - dot > EXTENSION_CHARACTERS_MAX ? name.length : dot;
  return `${name.slice(0, cut)} ${MARK}`;
}

const MARK = '(conflicted copy ';
const NOT_FROM = 'not from ';
/** NAME_MAX of Linux. */
const NAME_BYTES_MAX = 255;
const EXTENSION_CHARACTERS_MAX = 16;

/** The longest prefix of `text` with at most `bytesMax` bytes, cut between characters. */
function fitting(text: string, bytesMax: number): string {
  let bytes = 0;
  let fits = '';
  for (const character of text) {
    bytes += Buffer.byteLength(character);
    if (bytes > bytesMax) break;
    fits += character;
  }
  return fits;
}

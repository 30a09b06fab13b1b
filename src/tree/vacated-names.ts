import type { Inode, NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { RemoteFacet } from '../store/tables.ts';

/** A file that left its name here, by rename(2) or unlink(2), while the service had it under that name. */
export interface VacatedName {
  readonly ino: Inode;
  readonly kind: NodeKind;
  readonly how: 'renamed' | 'unlinked';
  /** What the service had under the name. */
  readonly remote: RemoteFacet;
  readonly atMs: number;
  readonly isPinned: boolean;
}

/** A name in a folder. */
export interface NamePlace {
  readonly parent: Inode;
  readonly name: string;
}

/**
 * The names that files left within the last `--save-window`. A file that is created under such a name claims it: a save in the
 * making, which may take over the replaced file's resource and history (`tree/ownership-transfer`, `sync/takeover`).
 *
 * In memory: after a restart a save that was not pushed yet goes on as a new file.
 */
export class VacatedNames {
  readonly #windowMs: number;
  /** The oldest first. */
  readonly #vacated = new Map<string, VacatedName>();
  readonly #claimed = new Map<string, VacatedName & NamePlace>();
  readonly #claims = new Map<ResourceUrl, NamePlace>();

  constructor(options: { readonly saveWindowMs: number }) {
    this.#windowMs = options.saveWindowMs;
  }

  vacate(place: NamePlace, vacated: VacatedName): void {
    const key = keyOf(place);
    this.#forget(key);
    this.#vacated.set(key, vacated);
    for (const [oldest, { atMs }] of this.#vacated) {
      if (vacated.atMs - atMs < this.#windowMs) break;
      this.#vacated.delete(oldest);
    }
  }

  /** The file that left the name within the window. */
  at(place: NamePlace, nowMs: number): VacatedName | undefined {
    const vacated = this.#vacated.get(keyOf(place));
    return vacated !== undefined && nowMs - vacated.atMs < this.#windowMs ? vacated : undefined;
  }

  /** A new file has the name. */
  claim(place: NamePlace, vacated: VacatedName): void {
    this.forget(place);
    this.#claimed.set(keyOf(place), { ...vacated, ...place });
    this.#claims.set(vacated.remote.resource, place);
    const [oldest] = this.#claimed.values();
    if (this.#claimed.size > CLAIMED_MAX && oldest !== undefined) this.forget(oldest);
  }

  /** The file that claimed the name has left it, before it was pushed. */
  release(place: NamePlace): void {
    const key = keyOf(place);
    const vacated = this.#claimed.get(key);
    if (vacated === undefined) return;
    this.forget(place);
    this.#vacated.set(key, vacated);
  }

  /** The name under which a new file is about to take over the resource. */
  claimOf(resource: ResourceUrl): NamePlace | undefined {
    return this.#claims.get(resource);
  }

  /** The file that left the name, if another has claimed it since. */
  claimed(place: NamePlace): VacatedName | undefined {
    return this.#claimed.get(keyOf(place));
  }

  forget(place: NamePlace): void {
    this.#forget(keyOf(place));
  }

  #forget(key: string): void {
    this.#vacated.delete(key);
    if (this.#claimed.size === 0) return;
    const resource = this.#claimed.get(key)?.remote.resource;
    if (resource !== undefined) this.#claims.delete(resource);
    this.#claimed.delete(key);
  }
}

/** Whether a file that left `name` was renamed to a backup of it: `f~`, `f.1`, `f.bak`, `.f.x`. */
export function isBackupName(candidate: string, name: string): boolean {
  return candidate !== name && candidate.includes(name);
}

function keyOf({ parent, name }: NamePlace): string {
  return `${parent}/${name}`;
}

const CLAIMED_MAX = 1_000;

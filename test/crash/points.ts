/** Where a process can be told to end (kill-points.mjs). */
export interface KillPoint {
  readonly victim: 'mount' | 'server';
  readonly name: string;
  /** How often the step may be passed at most before it is the last. */
  readonly nthMax: number;
}

/** No step: whenever it comes, in the middle of a call or of a request. */
export const ANY_MOMENT = 'at any moment';

const STORE = ['journal-write', 'content-write'].flatMap((name) => [`${name} before`, `${name} torn`, `${name} after`]);
/** Seldom under a short load: a new file of the journal, contents that are removed or cut. */
const STORE_SELDOM = ['journal-rename', 'content-create', 'content-remove', 'content-truncate'].flatMap((name) => [
  `${name} before`,
  `${name} after`,
]);
const UPLOAD = ['create', 'begin-version', 'data', 'place', 'history'].flatMap((name) => [
  `${name} sent`,
  `${name} answered`,
  `${name} ended`,
]);
const SERVER = ['rows', 'blob-writev', 'blob-sync', 'blob-datasync', 'blob-mkdir', 'blob-link', 'blob-unlink'].flatMap(
  (name) => [`${name} before`, `${name} after`],
);

export const KILL_POINTS: readonly KillPoint[] = [
  ...STORE.map((name) => ({ victim: 'mount' as const, name, nthMax: 40 })),
  ...STORE_SELDOM.map((name) => ({ victim: 'mount' as const, name, nthMax: 2 })),
  ...[...UPLOAD, 'data partly sent', 'listing answered'].map((name) => ({ victim: 'mount' as const, name, nthMax: 4 })),
  ...SERVER.map((name) => ({ victim: 'server' as const, name, nthMax: 6 })),
  ...Array.from({ length: 6 }, () => ({ victim: 'mount' as const, name: ANY_MOMENT, nthMax: 1 })),
  ...Array.from({ length: 3 }, () => ({ victim: 'server' as const, name: ANY_MOMENT, nthMax: 1 })),
];

import type { TreeInvalidation } from '../tree/tree.ts';

/** The mapping between file names and the names that the service has (`tree/names`). */
export interface RemoteNaming {
  toRemoteName(fileName: string): string;
  toFileName(remoteName: string): string;
  /** `fileName` with the first number that makes it free. */
  distinct(fileName: string, taken: (fileName: string) => boolean): string;
}

/** Changes of the tree that a push caused: caches of names and attributes must drop these entries. */
export type OnTreeChange = (changes: readonly TreeInvalidation[]) => void;

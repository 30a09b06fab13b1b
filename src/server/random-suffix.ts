import { randomBytes } from 'node:crypto';

/**
 * 64 random bits in decimal digits: the second half of every id that is given away. The counter in the first half goes back with the data
 * when they are restored from a backup; without the second half an id would then name another resource.
 */
export function randomSuffix(): string {
  return randomBytes(8).readBigUInt64BE().toString();
}

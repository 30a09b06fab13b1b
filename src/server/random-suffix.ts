import { randomBytes } from 'node:crypto';

/**
 * 64 random bits in decimal digits: the second half of every id given to clients. Restoring a backup resets the counter
 * in the first half; without the second half, an id would then name another resource.
 */
export function randomSuffix(): string {
  return randomBytes(8).readBigUInt64BE().toString();
}

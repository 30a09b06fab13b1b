import { randomInt } from 'node:crypto';

/**
 * 64 random bits in decimal digits: the second half of every id given to clients. Restoring a backup resets the counter
 * in the first half; without the second half, an id would then name another resource.
 */
export function randomSuffix(): string {
  // randomInt reads the system's random bytes in batches, unlike randomBytes: some microseconds for each id.
  return ((BigInt(randomInt(WORD)) << 32n) | BigInt(randomInt(WORD))).toString();
}

const WORD = 2 ** 32;

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { partBytesOf, type S3Store } from '../../../src/server/s3/s3-store.ts';
import { faultSuite } from './fault-suite.ts';
import { StandInS3 } from './stand-in-s3.ts';
import { storeContract } from './store-contract.ts';

/** The client of the object store, over a store that fails as real ones do. */

const MIB = 1024 * 1024;
let standIn: StandInS3;
let store: S3Store;

beforeAll(async () => {
  standIn = await StandInS3.start();
  store = standIn.open();
});

afterAll(async () => {
  await store.close();
  await standIn.close();
});

describe('the stand-in', () => {
  storeContract(() => store);
  faultSuite(() => ({ store, faults: standIn.plan, unfinished: async () => standIn.uploads.size }));
});

test('no file has more than 10,000 parts', () => {
  expect(partBytesOf(1)).toBe(8 * MIB);
  for (const sizeBytes of [80_000 * MIB, 80_000 * MIB + 1, 5 * 1024 ** 4])
    expect(Math.ceil(sizeBytes / partBytesOf(sizeBytes))).toBeLessThanOrEqual(10_000);
});

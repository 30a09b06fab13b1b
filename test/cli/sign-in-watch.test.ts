import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Account, writeAccountFile } from '../../src/mount/account-file.ts';
import { SignInWatch } from '../../src/mount/sign-in-watch.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

const FIRST: Account = {
  origin: 'https://service.example',
  userId: '1',
  username: 'ann@example.com',
  application: '/sc/1/1_1',
  accessKeyId: 'AK',
  privateAccessKey: 'PK',
  refreshToken: 'https://service.example/app-authorization/R1',
};

let directory: string;
let file: string;
let clock: ManualClock;
let told: Account[];
let watch: SignInWatch;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-sign-in-'));
  file = join(directory, 'account.json');
  clock = new ManualClock();
  told = [];
  writeAccountFile(file, FIRST);
  watch = new SignInWatch({ accountFile: file, inUse: FIRST, clock, onSignIn: (account) => told.push(account) });
});
afterEach(() => rmSync(directory, { recursive: true }));

test('the sign-in that is in use is not told, another one once, also when it comes after a sign-out', () => {
  watch.start();
  clock.advance(10_000);
  expect(told).toEqual([]);

  rmSync(file);
  clock.advance(10_000);
  const second = { ...FIRST, refreshToken: 'https://service.example/app-authorization/R2' };
  writeAccountFile(file, second);
  clock.advance(10_000);

  expect(told).toEqual([second]);
});

test('other keys with the same token are another sign-in', () => {
  watch.start();
  writeAccountFile(file, { ...FIRST, privateAccessKey: 'another' });

  clock.advance(10_000);

  expect(told).toHaveLength(1);
});

test('what came before anybody watched is told at once, and nothing is looked at while nobody does', () => {
  writeAccountFile(file, { ...FIRST, accessKeyId: 'another' });
  expect(clock.timers).toBe(0);

  watch.start();
  expect(told).toHaveLength(1);
  watch.stop();

  expect(clock.timers).toBe(0);
});

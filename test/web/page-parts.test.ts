import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { diffedLines } from '../../src/web/page/line-diff.ts';
import { ratesOf } from '../../src/web/page/rates.ts';
import { Throughput } from '../../src/web/throughput.ts';
import { PROJECT } from '../imports.ts';

const MINUTE_MS = 60_000;

test('samples of ten minutes are kept, and one for each five minutes of a day', () => {
  const throughput = new Throughput();
  for (let atMs = 0; atMs <= 26 * 60 * MINUTE_MS; atMs += 5_000) throughput.add({ atMs, pushed: atMs, fetched: 0 });
  const { samples } = throughput;
  const nowMs = 26 * 60 * MINUTE_MS;
  const fine = samples.filter(({ atMs }) => atMs >= nowMs - 10 * MINUTE_MS);
  const coarse = samples.filter(({ atMs }) => atMs < nowMs - 10 * MINUTE_MS);

  expect(fine).toHaveLength(121);
  expect(coarse.length).toBeGreaterThan(280);
  expect(coarse.length).toBeLessThan(292);
  expect(samples[0]?.atMs).toBeGreaterThanOrEqual(nowMs - 24 * 60 * MINUTE_MS);
});

test('rates are bytes per second between samples, and a mount that began anew counts from zero', () => {
  const samples = [
    { atMs: 0, pushed: 100, fetched: 0 },
    { atMs: 10_000, pushed: 1_100, fetched: 50 },
    { atMs: 20_000, pushed: 200, fetched: 50 },
  ];

  expect(ratesOf(samples, 0)).toEqual([
    [10, 20],
    [100, 20],
    [5, 0],
  ]);
  expect(ratesOf(samples, 15_000)[0]).toEqual([20]);
  expect(ratesOf([], 0)).toEqual([[], [], []]);
});

test('a diff marks the lines of each side and cuts long equal parts', () => {
  const lines = (from: number, to: number): string =>
    Array.from({ length: to - from }, (_, at) => `${from + at}\n`).join('');
  const shown = diffedLines(`${lines(0, 20)}old\n${lines(30, 32)}`, `${lines(0, 20)}new\n${lines(30, 32)}`);

  expect(shown.map(({ mark, text }) => `${mark}${text}`)).toEqual([
    ...['…17 equal lines', ' 17', ' 18', ' 19', '-old', '+new', ' 30', ' 31'],
  ]);
});

/** The page loads libraries of at most this size. */
const VENDORED_BYTES_MAX = 100 * 1024;

test('the libraries of the page are at most 100 KiB, with their licences', () => {
  const folder = join(PROJECT, 'dist/web/page');
  const bytes = ['vendor.js', 'vendor.css'].map((name) => statSync(join(folder, name)).size);

  expect(bytes.reduce((sum, each) => sum + each, 0)).toBeLessThanOrEqual(VENDORED_BYTES_MAX);
  const licences = readFileSync(join(folder, 'licences.txt'), 'utf8');
  for (const name of ['preact', 'htm', 'uplot', 'diff']) expect(licences).toMatch(new RegExp(`^${name} \\d`, 'm'));
  expect(licences).toContain('MIT');
});

/** [S-web-1] */
test('no file of the page names another host', () => {
  const folder = join(PROJECT, 'src/web/page');
  const text = readdirSync(folder)
    .map((name) => readFileSync(join(folder, name), 'utf8'))
    .join('\n');

  expect(text.match(/https?:\/\/(?!api\.example\.com|www\.w3\.org\/2000\/svg)[\w.]+/g)).toBeNull();
});

import { describe, expect, test } from 'vitest';
import { type Line, LineModel } from './line-model.ts';

const MIB = 1024 * 1024;
const FAR: Line = { connections: 8, latencyMs: 30, bytesPerMs: 25_000 };

describe('a first sequential read, 30 ms away over eight connections of 25 MB/s', () => {
  // What the line alone would take for it (bytes at its full rate, one way to the service), and what reading ahead may cost.
  test.each([
    [2, 1.8],
    [8, 1.45],
    [16, 1.4],
    [64, 1.45],
    [256, 1.2],
  ])('%i MiB take at most %f × the line', (mib, atMost) => {
    const { ms } = new LineModel(FAR, mib * MIB).readAll();
    const lineMs = FAR.latencyMs + (mib * MIB) / (FAR.connections * FAR.bytesPerMs);

    expect(ms / lineMs).toBeLessThanOrEqual(atMost);
  });

  test('256 MiB come with at least 0.8 × the rate of all connections, in few requests', () => {
    const { ms, requests } = new LineModel(FAR, 256 * MIB).readAll();

    expect((256 * MIB) / ms).toBeGreaterThanOrEqual(0.8 * FAR.connections * FAR.bytesPerMs);
    expect(requests).toBeLessThanOrEqual(70);
  });
});

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
    // Without the bound by what the reader consumed: 1.28 and 1.12. With it a window about doubles from one round trip to the
    // next. Longer or staggered requests, other steps and a higher allowance were no better than this.
    [64, 1.42],
    [256, 1.18],
  ])('%i MiB take at most %f × the line', (mib, atMost) => {
    const { ms } = new LineModel(FAR, mib * MIB).readAll();
    const lineMs = FAR.latencyMs + (mib * MIB) / (FAR.connections * FAR.bytesPerMs);

    expect(ms / lineMs).toBeLessThanOrEqual(atMost);
  });

  test('256 MiB come with at least 0.83 × the rate of all connections, in few requests', () => {
    const { ms, requests } = new LineModel(FAR, 256 * MIB).readAll();

    expect((256 * MIB) / ms).toBeGreaterThanOrEqual(0.83 * FAR.connections * FAR.bytesPerMs);
    expect(requests).toBeLessThanOrEqual(70);
  });
});

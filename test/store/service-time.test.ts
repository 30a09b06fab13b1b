import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import { decodeValue, encodeValue } from '../../src/store/record-codec.ts';
import { encodeKey } from '../../src/store/row-key.ts';
import {
  boundBefore,
  boundOf,
  type Certainty,
  isSameServiceTime,
  mayBeTimeOf,
  mayBeVersionTimeOf,
  RACY_MS,
  revalidated,
  type ServiceTime,
  suspected,
} from '../../src/store/service-time.ts';
import type { DepartedRecord } from '../../src/store/tables.ts';
import { sampleNode, sampleRemote } from './sample-records.ts';

/** Any moment of a service, from 1970 to 2200. */
const moments = fc.integer({ min: 1, max: 7_258_118_400_000 });
const REPORTED = ['exact', 'racy', 'suspect'] as const;
const CERTAINTIES: readonly Certainty[] = [...REPORTED, 'upper-bound', 'suspect-bound'];

describe('a time of the service', () => {
  it('a suspect time is exact after a revalidation', () => {
    const ms = 1_700_000_000_123;
    const after = CERTAINTIES.map((certainty) => revalidated({ ms, certainty })?.certainty);
    expect(after).toEqual(['exact', 'racy', 'exact', 'upper-bound', 'upper-bound']);
    expect(revalidated(null)).toBeNull();
  });

  it('a reported time matches only the same time, with any certainty', () => {
    fc.assert(
      fc.property(moments, moments, fc.constantFrom(...REPORTED), (ms, other, certainty) => {
        expect(mayBeTimeOf({ ms, certainty }, ms)).toBe(true);
        expect(mayBeTimeOf({ ms, certainty }, other)).toBe(other === ms);
        expect(mayBeTimeOf({ ms, certainty }, ms + 1)).toBe(false);
      }),
    );
  });

  it('an upper bound matches any time up to it', () => {
    fc.assert(
      fc.property(moments, moments, (answeredMs, reportedMs) => {
        expect(mayBeTimeOf(boundOf(answeredMs), reportedMs)).toBe(reportedMs <= answeredMs + RACY_MS);
      }),
    );
    expect(mayBeTimeOf(boundOf(1_000), 1_000 + RACY_MS)).toBe(true);
    expect(mayBeTimeOf(boundOf(1_000), 1_001 + RACY_MS)).toBe(false);
  });

  it('what an upload may have replaced matches no listed time, and in a history what it matched before', () => {
    fc.assert(
      fc.property(fc.option(moments), moments, fc.constantFrom(...CERTAINTIES), (ms, reportedMs, certainty) => {
        const time: ServiceTime | null = ms === null ? null : { ms, certainty };
        const isBoundOnly = time === null || certainty.endsWith('bound');
        if (isBoundOnly) expect(mayBeTimeOf(suspected(time), reportedMs)).toBe(false);
        const matched = isBoundOnly ? time === null || reportedMs <= time.ms : reportedMs === time.ms;
        expect(mayBeVersionTimeOf(suspected(time), reportedMs)).toBe(matched);
      }),
    );
  });

  it('the bound of a base is before a reported time, and at most an upper bound', () => {
    for (const certainty of REPORTED)
      expect(boundBefore({ ms: 7, certainty })).toEqual({ ms: 6, certainty: 'upper-bound' });
    const bound: ServiceTime = { ms: 7, certainty: 'upper-bound' };
    expect(boundBefore(bound)).toEqual(bound);
  });

  it('an unknown time matches any time', () => {
    const exact: ServiceTime = { ms: 5, certainty: 'exact' };
    expect([mayBeTimeOf(null, 5), mayBeTimeOf(exact, null), mayBeTimeOf(boundOf(5), null)]).toEqual([true, true, true]);
  });

  it('two times are equal only with the same certainty', () => {
    const times = [null, ...[1, 2].flatMap((ms) => CERTAINTIES.map((certainty) => ({ ms, certainty })))];
    for (const one of times)
      for (const other of times) expect(isSameServiceTime(one && { ...one }, other)).toBe(one === other);
  });
});

/** Rows as the program wrote them that kept the certainty in the fraction of one number. */
const NODE_ROWS: Readonly<Record<Exclude<Certainty, 'suspect-bound'>, string>> = {
  exact: '9400c2c099a17201a16ec001cb4278bcfe5687b000c0c0c08a509a75',
  racy: '9400c2c099a17201a16ec001cb4278bcfe5687a800c0c0c0c98c0a25',
  suspect: '9400c2c099a17201a16ec001cb4278bcfe5687ac00c0c0c0092a8ad0',
  'upper-bound': '9400c2c099a17201a16ec001cb4278bcfe5704b400c0c0c0889b49be',
};
const DEPARTED_ROW = '9c0102030405060708c009cb4278bcfe5687ac00c29a77d303';

test.each([...REPORTED, 'upper-bound'] as const)(
  'a node that an older program stored keeps its time: %s',
  (certainty) => {
    const ino = 7 as Inode;
    const ms = certainty === 'upper-bound' ? 1_700_000_002_123 : 1_700_000_000_123;
    const row = Buffer.from(NODE_ROWS[certainty], 'hex');
    expect(decodeValue('node', ino, encodeKey('node', ino), row)?.remote?.modified).toEqual({ ms, certainty });
  },
);

test('the attributes of a removed node that an older program stored keep its time', () => {
  const url = 'r' as ResourceUrl;
  const row = decodeValue('departed', url, encodeKey('departed', url), Buffer.from(DEPARTED_ROW, 'hex'));
  expect(row?.modified).toEqual({ ms: 1_700_000_000_123, certainty: 'suspect' });
});

test('every time is read as it was stored', () => {
  const ino = 7 as Inode;
  const nodeKey = encodeKey('node', ino);
  const url = 'r' as ResourceUrl;
  const departedKey = encodeKey('departed', url);
  const time = { sec: 1, nsec: 2 };
  const departed = { departedMs: 1, mode: 2, uid: 3, gid: 4, atime: time, mtime: time, xattrs: null, sizeBytes: 9 };
  fc.assert(
    fc.property(
      fc.integer({ min: -1_000, max: 7_258_118_400_000 }),
      fc.constantFrom(...CERTAINTIES),
      (ms, certainty) => {
        const modified = { ms, certainty };
        const node = sampleNode(ino, { remote: sampleRemote(1, 'n', { modified }) });
        expect(decodeValue('node', ino, nodeKey, encodeValue('node', ino, nodeKey, node))).toEqual(node);
        const row: DepartedRecord = { ...departed, modified, isPinned: true };
        expect(decodeValue('departed', url, departedKey, encodeValue('departed', url, departedKey, row))).toEqual(row);
      },
    ),
    { examples: [[0, 'suspect']] },
  );
});

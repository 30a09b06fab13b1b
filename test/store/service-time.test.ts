import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  doubtedTime,
  isDoubted,
  isYoung,
  mayBeTimeOf,
  timeLimit,
  undoubted,
  YOUNG_MS,
  youngTime,
} from '../../src/store/service-time.ts';

/** Any moment of a service, from 1970 to 2200. */
const moments = fc.integer({ min: 1, max: 7_258_118_400_000 });

describe('a time of the service', () => {
  it('is one of four things, whichever time it is', () => {
    fc.assert(
      fc.property(moments, (told) => {
        const kept = { told, young: youngTime(told), doubted: doubtedTime(told), limit: timeLimit(told) };
        expect(Object.entries(kept).filter(([, ms]) => isYoung(ms))).toEqual([['young', kept.young]]);
        expect(Object.entries(kept).filter(([, ms]) => isDoubted(ms))).toEqual([['doubted', kept.doubted]]);
        expect(undoubted(kept.doubted)).toBe(told);
        for (const ms of [kept.told, kept.young, kept.limit, null]) expect(undoubted(ms)).toBe(ms);
      }),
    );
  });

  it('that was told is that of the same bytes alone, whether it is trusted or not', () => {
    fc.assert(
      fc.property(moments, moments, (told, other) => {
        for (const kept of [told, youngTime(told), doubtedTime(told)]) {
          expect(mayBeTimeOf(kept, told)).toBe(true);
          expect(mayBeTimeOf(kept, other)).toBe(other === told);
          expect(mayBeTimeOf(kept, told + 1)).toBe(false);
        }
      }),
    );
  });

  it('that was never told may be any up to the limit', () => {
    fc.assert(
      fc.property(moments, moments, (answered, told) => {
        expect(mayBeTimeOf(timeLimit(answered), told)).toBe(told <= answered + YOUNG_MS);
      }),
    );
    expect(mayBeTimeOf(timeLimit(1_000), 1_000 + YOUNG_MS)).toBe(true);
    expect(mayBeTimeOf(timeLimit(1_000), 1_001 + YOUNG_MS)).toBe(false);
  });

  it('that is not known on one side says nothing', () => {
    expect([mayBeTimeOf(null, 5), mayBeTimeOf(5, null), mayBeTimeOf(timeLimit(5), null)]).toEqual([true, true, true]);
  });
});

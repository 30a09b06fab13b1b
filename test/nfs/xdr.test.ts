import { expect, test } from 'vitest';
import { XdrReader, XdrWriter } from '../../src/nfs/xdr.ts';

test.each(['a', 'ö', '話', '😀'])('a text of %s keeps its bytes wherever the memory of the writer ends', (letter) => {
  for (let length = 0; length < 90; length++) {
    const text = letter.repeat(length);
    for (const capacity of [4, 64, 100]) {
      const written = new XdrReader(new XdrWriter(capacity).u32(7).text(text).u32(8).done());
      expect(written.u32()).toBe(7);
      expect(written.opaque(1_000).toString()).toBe(text);
      expect(written.u32()).toBe(8);
    }
  }
});

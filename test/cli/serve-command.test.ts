import { expect, test } from 'vitest';
import { addressHint } from '../../src/cli/serve/serve-command.ts';

test.each(['https://0.0.0.0:8443', 'http://[::]:80', 'https://[0:0:0:0:0:0:0:0]:8443'])(
  'who listens on all addresses (%s) hears what others need',
  (origin) => {
    expect(addressHint(origin)).toBe(
      `URLs in responses begin with ${origin}: for clients on other machines set --public-origin`,
    );
  },
);

test.each(['http://127.0.0.1:41473', 'http://[::1]:41473', 'https://192.168.1.2', 'https://cloud.example.com'])(
  'who listens on one (%s) does not',
  (origin) => {
    expect(addressHint(origin)).toBeNull();
  },
);

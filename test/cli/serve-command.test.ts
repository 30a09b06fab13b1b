import { expect, test } from 'vitest';
import { addressHint } from '../../src/cli/serve/serve-command.ts';

test.each(['https://0.0.0.0:8443', 'http://[::]:80', 'https://[0:0:0:0:0:0:0:0]:8443'])(
  'cfs serve on all addresses (%s) prints what other machines need',
  (origin) => {
    expect(addressHint(origin)).toBe(
      `URLs in responses begin with ${origin}: for clients on other machines set --public-origin`,
    );
  },
);

test.each(['http://127.0.0.1:41473', 'http://[::1]:41473', 'https://192.168.1.2', 'https://cloud.example.com'])(
  'cfs serve on one address (%s) prints no hint',
  (origin) => {
    expect(addressHint(origin)).toBeNull();
  },
);

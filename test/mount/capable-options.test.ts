import { expect, test } from 'vitest';
import { loadOptions } from '../../src/config/load.ts';
import type { Options } from '../../src/config/options.ts';
import { capableOptions } from '../../src/mount/capable-options.ts';
import { MemoryService } from '../remote/memory-service.ts';

const defaults = (): Options => loadOptions({ flags: {}, env: {}, file: null }).options;

test('a service with a trash and uploads leaves the options as they are', () => {
  expect(capableOptions(defaults(), new MemoryService())).toEqual(defaults());
});

test('a mount of a service without uploads is read-only', () => {
  expect(capableOptions(defaults(), new MemoryService(['uploads', 'trash']))).toEqual({
    ...defaults(),
    readOnly: true,
  });
});

test('a writable mount of a service without a trash must delete permanently', () => {
  const service = new MemoryService(['trash']);

  expect(() => capableOptions(defaults(), service)).toThrow('the service has no trash: mount with --delete forever');
  const options: Options = { ...defaults(), deletion: 'forever' };
  expect(capableOptions(options, service)).toEqual(options);
});

test('the whole account is refused where the service does not show one', () => {
  expect(() => capableOptions({ ...defaults(), root: 'account' }, new MemoryService())).toThrow(
    'the service shows no whole account: mount without --root account',
  );
});

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { s3Credentials } from '../../../src/server/s3/s3-credentials.ts';
import { s3Location } from '../../../src/server/s3/s3-location.ts';

/** The URL of `--objects`, and where its keys come from. */

test('a URL names the bucket, a prefix, the endpoint and the region', () => {
  expect(s3Location('s3://my-bucket/a/b/?endpoint=https://store.example.com:9000/&region=eu-1')).toEqual({
    origin: 'https://store.example.com:9000',
    bucket: 'my-bucket',
    prefix: 'a/b/',
    region: 'eu-1',
    name: 's3://my-bucket/a/b at store.example.com:9000',
  });
  expect(s3Location('s3://my-bucket').origin).toBe('https://s3.us-east-1.amazonaws.com');
});

test.each([
  ['https://store.example.com/bucket', 'not an s3:// URL'],
  ['s3://key:secret@bucket', 'AWS_SECRET_ACCESS_KEY'],
  ['s3://B', 'bucket name'],
  ['s3://bucket?endpoint=ftp://store', 'endpoint'],
  ['s3://bucket?endpoint=https://store/path', 'endpoint'],
  ['s3://bucket?zone=1', '"zone"'],
  ['s3://bucket/a%20b', 'prefix'],
])('%s is refused with the reason', (text, reason) => {
  expect(() => s3Location(text)).toThrow(reason);
});

test('keys come from the environment', () => {
  const env = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret', AWS_SESSION_TOKEN: 'token' };

  expect(s3Credentials(env)).toEqual({ accessKeyId: 'id', secretAccessKey: 'secret', sessionToken: 'token' });
  expect(() => s3Credentials({ AWS_ACCESS_KEY_ID: 'id' })).toThrow('AWS_SECRET_ACCESS_KEY');
});

test('keys come from a section of a file that the environment names', () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-keys-'));
  const path = join(directory, 'credentials');
  writeFileSync(
    path,
    '# comment\n[default]\naws_access_key_id = one\naws_secret_access_key=first\n\n[other]\naws_access_key_id=two\naws_secret_access_key = second\n',
  );
  const env = { AWS_SHARED_CREDENTIALS_FILE: path };

  expect(s3Credentials(env)).toMatchObject({ accessKeyId: 'one', secretAccessKey: 'first' });
  expect(s3Credentials({ ...env, AWS_PROFILE: 'other' })).toMatchObject({ accessKeyId: 'two' });
  expect(() => s3Credentials({ ...env, AWS_PROFILE: 'none' })).toThrow('[none]');
  expect(() => s3Credentials({ AWS_SHARED_CREDENTIALS_FILE: join(directory, 'missing') })).toThrow('ENOENT');
  rmSync(directory, { recursive: true });
});

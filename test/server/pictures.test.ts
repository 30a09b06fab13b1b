import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { decodeFile } from '../../src/protocol/messages.ts';
import { pictureRequest } from '../../src/server/pictures.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { testUnless, titled } from '../harness/requirement.ts';
import { signUp, type TestUser } from './raw-client.ts';

/** Pictures in another size (docs/service.md 6.6). */

const name: string = 'sharp';
// biome-ignore lint/suspicious/noExplicitAny: its types are not here when it is not
const sharp: any = await import(name).then(
  (module) => module.default,
  () => null,
);
const missing = sharp === null ? 'the optional package sharp' : null;

const directory = mkdtempSync(join(tmpdir(), 'cfs-pictures-'));
let server: ReferenceServer;
let user: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com');
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

test('the size is read with and without parentheses, and data are data', () => {
  const full = { widthMax: 100, heightMax: 50, isSquare: true, quarterTurns: 3 };

  expect(pictureRequest('image/jpeg; pxmax=100; pymax=50; sq=(1); r=(3)')).toEqual(full);
  expect(pictureRequest('image/jpeg;pxmax=100;pymax=50;sq=1;r=7;')).toEqual(full);
  expect(pictureRequest('image/jpeg; pxmax=9; pymax=8')).toEqual({
    widthMax: 9,
    heightMax: 8,
    isSquare: false,
    quarterTurns: 0,
  });
  for (const accept of [undefined, '*/*', 'image/jpeg', 'application/xml; q=0.5'])
    expect(pictureRequest(accept)).toBeNull();
});

// Taken apart in every way that there is, so many take minutes.
test('blanks without end are taken apart in no time', () => {
  const blanks = ' '.repeat(2 ** 19);

  expect(() => pictureRequest(`image/jpeg; pxmax=${blanks}x; pymax=1`)).toThrow('Not acceptable');
  expect(pictureRequest(`image/jpeg; pxmax=${blanks}(${blanks}9 ); pymax = 8`)).toMatchObject({
    widthMax: 9,
    heightMax: 8,
  });
});

test('a size that is none is 406', () => {
  for (const size of [
    'pxmax=100',
    'pxmax=0; pymax=1',
    'pxmax=x; pymax=1',
    'pxmax=1; pymax=99999',
    'pxmax=1; pymax=1; sq=2',
    'pxmax=1; pymax=1; r=x',
  ]) {
    expect(() => pictureRequest(`image/jpeg; ${size}`), size).toThrow('Not acceptable');
  }
  expect(() => pictureRequest('image/png; pxmax=1; pymax=1')).toThrow('Not acceptable');
});

test('what is no JPEG picture is 406', async () => {
  const broken = await user.client.createFilled(user.folder('2'), 'broken.jpg', 'not really', 'image/jpeg');
  const text = await user.client.createFilled(user.folder('2'), 'text', 'x', 'text/plain');

  for (const file of [broken, text]) {
    const { status } = await user.client.get(`${file}/data`, { Accept: 'image/jpeg; pxmax=10; pymax=10' });
    expect(status).toBe(406);
  }
});

testUnless(missing)('a picture is scaled, squared and turned', async () => {
  const original = await sharp({ create: { width: 200, height: 100, channels: 3, background: 'red' } })
    .jpeg()
    .toBuffer();
  const file = await user.client.createFilled(user.folder('2'), 'p.jpg', original, 'image/jpeg');
  const sizeOf = async (parameters: string) => {
    const { bytes, headers } = await user.client.get(`${file}/data`, { Accept: `image/jpeg; ${parameters}` });
    const { width, height, format } = await sharp(bytes).metadata();
    return [headers['content-type'], format, width, height];
  };

  expect(await sizeOf('pxmax=50; pymax=50')).toEqual(['image/jpeg', 'jpeg', 50, 25]);
  expect(await sizeOf('pxmax=50; pymax=50; r=(1)')).toEqual(['image/jpeg', 'jpeg', 25, 50]);
  expect(await sizeOf('pxmax=50; pymax=60; sq=(1)')).toEqual(['image/jpeg', 'jpeg', 50, 50]);
  expect(await sizeOf('pxmax=500; pymax=500')).toEqual(['image/jpeg', 'jpeg', 200, 100]);
});

testUnless(missing)('a picture that is lying on its side is scaled as it stands upright', async () => {
  const original = await sharp({ create: { width: 200, height: 100, channels: 3, background: 'red' } })
    .withMetadata({ orientation: 6 })
    .jpeg()
    .toBuffer();
  const file = await user.client.createFilled(user.folder('2'), 'side.jpg', original, 'image/jpeg');

  const { bytes } = await user.client.get(`${file}/data`, { Accept: 'image/jpeg; pxmax=50; pymax=50' });

  expect(await sharp(bytes).metadata()).toMatchObject({ width: 25, height: 50 });
});

describe.skipIf(missing !== null)(titled('the document of a file', missing), () => {
  const picture = (format: string, orientation: number) =>
    sharp({ create: { width: 30, height: 20, channels: 3, background: 'red' } })
      .withMetadata({ orientation })
      .toFormat(format)
      .toBuffer();
  const imageOf = async (name: string, data: string | Uint8Array, mediaType: string) => {
    const file = await user.client.createFilled(user.folder('2'), name, data, mediaType);
    return decodeFile((await user.client.get(file)).text).image;
  };

  test.each([
    ['jpeg', 1, 0],
    ['jpeg', 3, 180],
    ['jpeg', 6, 90],
    ['jpeg', 8, 270],
    ['png', 1, 0],
  ])('says how large a %s of orientation %i is, and how it lies', async (format, orientation, rotation) => {
    const data = await picture(format, orientation);

    expect(await imageOf(`p.${format}`, data, `image/${format}`)).toEqual({ width: 30, height: 20, rotation });
  });

  test('a picture of more than 25 megapixels is not scaled', async () => {
    const plain = { width: 5100, height: 5000, channels: 3, background: 'red' };
    const data = await sharp({ create: plain }).jpeg().toBuffer();
    const file = await user.client.createFilled(user.folder('2'), 'huge.jpg', data, 'image/jpeg');

    const { status } = await user.client.get(`${file}/data`, { Accept: 'image/jpeg; pxmax=10; pymax=10' });

    expect(status).toBe(406);
    expect((await user.client.get(file)).status).toBe(200);
  });

  test('says nothing of one that is none', async () => {
    const data = await picture('png', 1);

    expect(await imageOf('broken.png', 'not really', 'image/png')).toBeUndefined();
    expect(await imageOf('cut.png', data.subarray(0, 20), 'image/png')).toBeUndefined();
    expect(await imageOf('a.txt', data, 'text/plain')).toBeUndefined();
    expect(
      await imageOf('a.svg', '<svg width="1" height="1" xmlns="http://www.w3.org/2000/svg"/>', 'image/svg+xml'),
    ).toBeUndefined();
  });

  test('says the same when it was changed', async () => {
    const file = await user.client.createFilled(user.folder('2'), 'c.png', await picture('png', 1), 'image/png');

    const { text } = await user.client.send('PUT', file, { body: '<file><displayName>d.png</displayName></file>' });

    expect(decodeFile(text).image).toEqual({ width: 30, height: 20, rotation: 0 });
  });
});

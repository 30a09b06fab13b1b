import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { DesktopThumbnails, fileUri, removeThumbnails } from '../../src/mount/desktop-thumbnails.ts';
import { textsOf, withTexts } from '../../src/mount/png-text.ts';
import { thumbnailerEntry } from '../../src/mount/thumbnailer-entry.ts';

/** One grey pixel, with a text that a program gave it. */
const PNG = pngOf([
  ['IHDR', Buffer.from('00000001000000010800000000', 'hex')],
  ['tEXt', Buffer.from('Thumb::URI\0file:///elsewhere')],
  ['IDAT', deflateSync(Buffer.from([0, 128]))],
  ['IEND', Buffer.alloc(0)],
]);

let home: string;
let env: Readonly<Record<string, string>>;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'cfs-thumbs-'));
  env = {
    HOME: home,
    // Without bubblewrap: the thumbnailer below is not in /usr.
    PATH: '/nowhere',
    XDG_DATA_HOME: join(home, 'data'),
    XDG_CACHE_HOME: join(home, 'cache'),
  };
  // The thumbnailer of the system: its output is the picture above, if its input is a JPEG.
  writeFileSync(join(home, 'picture.png'), PNG);
  const program = join(home, 'thumbnailer');
  writeFileSync(
    program,
    `#!/bin/sh\nset -e; PATH=/usr/bin:/bin\ngrep -q jpeg "$1"\ncat ${join(home, 'picture.png')} > "$2"\n`,
  );
  chmodSync(program, 0o755);
  install(`${program} %i %o`);
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

function install(other: string | null): void {
  mkdirSync(join(home, 'data/thumbnailers'), { recursive: true });
  writeFileSync(join(home, 'data/thumbnailers/cfs-mount.thumbnailer'), thumbnailerEntry(other));
}

function thumbnails(directory = '/home/ann/Cloud', account = '17@api.example.com'): DesktopThumbnails {
  return new DesktopThumbnails({ directory, account, env, log: silentLogger });
}

const JPEG = Buffer.from('a jpeg');
const PICTURE = { path: 'Photos/süß #1.jpg', mtimeSec: 1_700_000_000 };
const URI = 'file:///home/ann/Cloud/Photos/s%C3%BC%C3%9F%20%231.jpg';
const NAME = `${createHash('md5').update(URI).digest('hex')}.png`;

const place = (...names: readonly string[]): string => join(home, 'cache/thumbnails', ...names);

/** [S-desktop-4] */
test('a cached thumbnail has the name, the texts and the modes of the thumbnail specification', async () => {
  const cache = thumbnails();
  expect(await cache.missing([PICTURE])).toEqual([0]);

  await cache.keep(PICTURE, JPEG);

  const bytes = readFileSync(place('large', NAME));
  expect(Object.fromEntries(textsOf(bytes))).toEqual({
    'Thumb::URI': URI,
    'Thumb::MTime': '1700000000',
    Software: 'cfs-mount 17@api.example.com',
  });
  expect(statSync(place('large', NAME)).mode & 0o777).toBe(0o600);
  expect(statSync(place('large')).mode & 0o777).toBe(0o700);
  expect(readdirSync(place())).toEqual(['large']);
  expect(await cache.missing([{ ...PICTURE, mtimeSec: 5 }, PICTURE])).toEqual([0]);
});

/** [S-desktop-4] */
test('nothing is missing and nothing is written without cfs desktop install, or with the cache in the mount', async () => {
  mkdirSync(join(home, 'cache'));
  symlinkSync(join(home, 'cache'), join(home, 'link'));
  const inMount = new DesktopThumbnails({
    ...{ directory: join(home, 'cache'), account: 'a', log: silentLogger },
    env: { ...env, XDG_CACHE_HOME: join(home, 'link/below') },
  });
  expect(await inMount.missing([PICTURE])).toEqual([]);
  await inMount.keep(PICTURE, JPEG);
  expect(readdirSync(join(home, 'cache'))).toEqual([]);
  rmSync(join(home, 'data'), { recursive: true });

  expect(await thumbnails().missing([PICTURE])).toEqual([]);
  await thumbnails().keep(PICTURE, JPEG);
  expect(existsSync(place('large'))).toBe(false);
});

test('a thumbnailer that fails leaves nothing behind', async () => {
  await thumbnails().keep(PICTURE, Buffer.from('something else'));

  expect(readdirSync(place())).toEqual([]);
});

/** [S-desktop-5] */
test('the failure marks of every program for a picture are removed, and no others', async () => {
  for (const program of ['gnome-thumbnail-factory', 'other']) {
    mkdirSync(place('fail', program), { recursive: true });
    for (const name of [NAME, '0.png']) writeFileSync(place('fail', program, name), PNG);
  }

  expect(await thumbnails().retry([PICTURE.path, 'another.jpg'])).toEqual([PICTURE.path]);

  for (const program of ['gnome-thumbnail-factory', 'other'])
    expect(readdirSync(place('fail', program))).toEqual(['0.png']);
});

/** [S-desktop-4] */
test('the thumbnails of one account, or of all, are removed, and no others', async () => {
  await thumbnails().keep(PICTURE, JPEG);
  await thumbnails('/home/ann/Work', '18@api.example.com').keep(PICTURE, JPEG);
  writeFileSync(place('large', 'other.png'), PNG);
  writeFileSync(place('large', 'broken.png'), 'x');
  mkdirSync(place('.cfs-mount-left'));

  expect(await removeThumbnails(env, '17@api.example.com')).toBe(1);
  expect(existsSync(place('large', NAME))).toBe(false);
  expect(await removeThumbnails(env, null)).toBe(1);

  expect(readdirSync(place('large')).sort()).toEqual(['broken.png', 'other.png']);
  expect(readdirSync(place())).toEqual(['large']);
});

test('a URI is spelt as GLib spells it', () => {
  const given = `/tmp/a b;c=d@e:f+g,h!i$j&k(l)*m~n#o%p?q[r]{s}|t^u\`v"w<x>é'y\\z`;

  // From `gio info`, GLib 2.74.
  expect(fileUri(given)).toBe(
    `file:///tmp/a%20b%3Bc=d@e:f+g,h!i$j&k(l)*m~n%23o%25p%3Fq%5Br%5D%7Bs%7D%7Ct%5Eu%60v%22w%3Cx%3E%C3%A9'y%5Cz`,
  );
});

test('texts replace those of the picture, and leave its other chunks as they are', () => {
  const made = withTexts(PNG, { Software: 'x' });

  expect(made).not.toBeNull();
  expect(Object.fromEntries(textsOf(made ?? PNG))).toEqual({ Software: 'x' });
  expect(withTexts(made ?? PNG, { 'Thumb::URI': 'file:///elsewhere' })).toEqual(PNG);
  expect(withTexts(Buffer.from('GIF89a'), {})).toBeNull();
  expect(withTexts(PNG.subarray(0, -3), {})).toBeNull();
});

/** With checksums from an independent loop. */
function pngOf(chunks: readonly (readonly [string, Buffer])[]): Buffer {
  const framed = chunks.map(([type, data]) => {
    const typed = Buffer.concat([Buffer.from(type), data]);
    let crc = ~0;
    for (const byte of typed) {
      crc ^= byte;
      for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    }
    const frame = Buffer.alloc(8);
    frame.writeUInt32BE(data.length, 0);
    frame.writeUInt32BE(~crc >>> 0, 4);
    return Buffer.concat([frame.subarray(0, 4), typed, frame.subarray(4)]);
  });
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), ...framed]);
}

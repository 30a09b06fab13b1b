import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { FsError } from '../../src/base/errors.ts';
import { NAME_BYTES_MAX, Names } from '../../src/tree/names.ts';

const names = new Names();

/** Pieces that meet every rule of the mapping, and each other. */
const hostile = [
  '/',
  '\uff0f',
  '\u201b',
  '.',
  '..',
  '\uff0e',
  '\u2422',
  '\u2401',
  '\u240d',
  '\u2425',
  '\t',
  '\n',
  '\x7f',
  'a',
  ' ',
  'ä',
  'a\u0308',
  '日本',
  '🦊',
  'A.txt',
];
const sendable = fc.oneof(
  fc.array(fc.constantFrom(...hostile), { maxLength: 8 }).map((pieces) => pieces.join('')),
  fc.string({ unit: 'grapheme', maxLength: 40 }),
);
const fileName = fc
  .oneof(
    fc
      .array(fc.constantFrom(...hostile, '\x01', '\x07', '\r', '\x1f', '\ufffe', '\uffff'), { maxLength: 10 })
      .map((pieces) => pieces.join('')),
    fc.string({ unit: 'binary', maxLength: 60 }),
    fc.string({ unit: 'grapheme', maxLength: 80 }),
  )
  .map((text) => text.replace(/[/\0]/g, ''))
  .filter((text) => text !== '' && text !== '.' && text !== '..' && Buffer.byteLength(text) <= NAME_BYTES_MAX);

/** XML 1.0, section 2.2, without the carriage return that a parser makes a line feed. */
const isSendable = (text: string) => /^[\t\n\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]*$/u.test(text);

describe('names', () => {
  it('shows what Unix forbids as what looks like it', () => {
    expect(names.toFileName('AC/DC')).toBe('AC／DC');
    expect(names.toFileName('.')).toBe('．');
    expect(names.toFileName('..')).toBe('．．');
    expect(names.toFileName('')).toBe('␢');
    expect(names.toFileName('...')).toBe('...');
    expect(names.toRemoteName('bell\x07')).toBe('bell␇');
  });

  it('leaves ordinary names as they are', () => {
    for (const name of ['a', 'Ünïcode.txt', ' leading and trailing ', '日本語', 'a\nb', 'it‛s', "quote'"]) {
      expect(names.toFileName(name)).toBe(name);
      expect(names.toRemoteName(name)).toBe(name);
    }
  });

  it('every remote name has a file name from which it can be derived', () => {
    fc.assert(
      fc.property(sendable, (remote) => {
        fc.pre(isSendable(remote));
        const shown = names.toFileName(remote);
        fc.pre(!shown.includes('~')); // cut: see below
        expect(shown).not.toMatch(/^(|\.|\.\.)$|\/|\0/);
        expect(Buffer.byteLength(shown)).toBeLessThanOrEqual(NAME_BYTES_MAX);
        expect(names.toRemoteName(shown)).toBe(remote);
      }),
      { numRuns: 3000 },
    );
  });

  it('gives every file name a name that the service can be told and that leads back to it', () => {
    fc.assert(
      fc.property(fileName, (local) => {
        const sent = names.toRemoteName(local);
        expect(isSendable(sent)).toBe(true);
        expect(names.toFileName(sent)).toBe(local);
      }),
      { numRuns: 3000 },
    );
  });

  it('cuts names of more than 255 bytes, between characters, keeping extension and difference', () => {
    const long = '日'.repeat(120);
    const one = names.toFileName(`${long}1.txt`);
    const two = names.toFileName(`${long}2.txt`);
    expect(one).not.toBe(two);
    for (const name of [one, two]) {
      expect(Buffer.byteLength(name)).toBeLessThanOrEqual(NAME_BYTES_MAX);
      expect(name).toMatch(/^日+~[0-9a-f]{8}\.txt$/);
    }
    expect(names.toFileName('x'.repeat(255))).toBe('x'.repeat(255));
    expect(Buffer.byteLength(names.toFileName('x'.repeat(256)))).toBeLessThanOrEqual(NAME_BYTES_MAX);
  });

  it('numbers duplicates before the extension, within 255 bytes', () => {
    const taken = new Set(['photo.jpg', 'photo (2).jpg', '.profile', 'folder']);
    const isTaken = (name: string) => taken.has(name);
    expect(names.toFileName('photo.jpg', isTaken)).toBe('photo (3).jpg');
    expect(names.toFileName('.profile', isTaken)).toBe('.profile (2)');
    expect(names.toFileName('folder', isTaken)).toBe('folder (2)');
    const long = '日'.repeat(85);
    expect(Buffer.byteLength(names.toFileName(long, (name) => name === long))).toBeLessThanOrEqual(NAME_BYTES_MAX);
  });

  it('the local-only names are recognized', () => {
    for (const name of [
      '.fuse_hidden0000000100000001',
      '.~lock.report.odt#',
      '.DS_Store',
      '._photo.jpg',
      '.notes.txt.swp',
      '.X.SWP',
      '#edited#',
      '.goutputstream-ABC123',
      '.notes.kate-swp',
      'Desktop.ini',
      'THUMBS.DB',
      'Icon\r',
      'film.crdownload',
      'lu12345abc.tmp',
      '.unison.a.0123.unison.tmp',
      '.notes.swo',
      '.#edited',
      '~$report.docx',
    ]) {
      expect(names.staysLocal(name), name).toBe(true);
    }
    for (const name of [
      'a',
      '.gitignore',
      'DS_Store',
      'a.swap',
      'x.swp',
      '.notes.swx',
      'film.part',
      '.git',
      'file~',
      '4913',
      '.config',
    ]) {
      expect(names.staysLocal(name), name).toBe(false);
    }
    expect(new Names({ localNames: ['*.o'] }).staysLocal('main.o')).toBe(true);
    expect(new Names({ localNames: ['*.o'] }).staysLocal('.DS_Store')).toBe(false);
    expect(new Names({ localNames: [] }).staysLocal('')).toBe(false);
  });

  it('refuses what cannot be a file name', () => {
    const errnoOf = (name: string) => {
      try {
        names.check(name);
        return null;
      } catch (error) {
        return (error as FsError).errno;
      }
    };
    expect(errnoOf('x'.repeat(256))).toBe('ENAMETOOLONG');
    expect(errnoOf('ä'.repeat(128))).toBe('ENAMETOOLONG');
    expect(errnoOf('')).toBe('EINVAL');
    expect(errnoOf('..')).toBe('EINVAL');
    expect(errnoOf('a/b')).toBe('EINVAL');
    expect(errnoOf('a\ud800')).toBe('EILSEQ');
    expect(errnoOf('.Trash-1000')).toBe('EPERM');
    expect(errnoOf('ä'.repeat(127))).toBe(null);
    expect(errnoOf('🦊')).toBe(null);
  });
});

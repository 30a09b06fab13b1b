import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_WRONLY } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { fails } from '../workplace.ts';

const LONGEST = 'n'.repeat(255);
const TOO_LONG = 'n'.repeat(256);

/** Names in scripts, forms and shapes that programs trip over. Each is one path component. */
const UNUSUAL: Readonly<Record<string, string>> = {
  'Greek, Cyrillic, Hebrew, Arabic': 'αβγ где שלום مرحبا',
  'Chinese, Japanese, Korean': '文件 ファイル 파일',
  'Devanagari and Thai': 'फ़ाइल แฟ้ม',
  'characters beyond the basic plane': '📁🇩🇪👩‍👩‍👧𝒳',
  'spaces at both ends': '  padded  ',
  'dots and dashes in front': '-.-rf',
  'three dots': '...',
  'a trailing dot': 'report.',
  'quotes, dollar, backslash': `it's "$HOME" \\n \`id\``,
  'shell and glob characters': '*?[a-z]{x,y}|&;<>!#%^()~',
  'characters that other systems refuse': 'a:b*c?d"e<f>g|h',
  'XML characters': '<name attr="1">&amp;<name>',
  'a percent sequence': '100%2F50%00',
  'a plus and a space': 'a+b c',
  'a newline and a tab': 'line one\nline\ttwo',
  'control characters': '\x01\x1b[31m\x7f',
  'a leading digit run': '007',
  'a reserved name elsewhere': 'CON.txt',
  'an equals sign and commas': 'k=v,w;x',
};

/** Names: 255 bytes, any script, case and normal forms kept apart, and the limits. */
export const nameScenarios: readonly Scenario[] = [
  ...Object.entries(UNUSUAL).map(([what, name]) =>
    scenario(`a name with ${what} is created, listed, read, renamed and removed`, async (fs) => {
      await fs.put(name, what);
      expect(await fs.names()).toEqual([name]);
      expect(await fs.text(name)).toBe(what);

      await fs.rename(name, `${name}2`);
      expect(await fs.names()).toEqual([`${name}2`]);
      await fs.unlink(`${name}2`);
      await fs.mkdir(name);
      await fs.put(`${name}/child`, 'x');

      expect(await fs.names(name)).toEqual(['child']);
    }),
  ),
  scenario('names that differ only by case are different files', async (fs) => {
    await fs.put('Readme', 'one');
    await fs.put('README', 'two');

    expect(await fs.names()).toEqual(['README', 'Readme']);
    expect(await fs.text('Readme')).toBe('one');
    await fails('ENOENT', fs.stat('readme'));
  }),
  scenario('a rename that changes only the case is done', async (fs) => {
    await fs.put('photo.JPG', 'x');

    await fs.rename('photo.JPG', 'photo.jpg');

    expect(await fs.names()).toEqual(['photo.jpg']);
  }),
  scenario('composed and decomposed forms of a name are different files', async (fs) => {
    const composed = 'caf\u00e9';
    const decomposed = 'cafe\u0301';
    await fs.put(composed, 'NFC');
    await fs.put(decomposed, 'NFD');

    expect(await fs.text(composed)).toBe('NFC');
    expect(await fs.text(decomposed)).toBe('NFD');
    expect(await fs.names()).toEqual([composed, decomposed].sort());
  }),
  scenario('a name of 255 bytes works, for files, folders and symlinks', async (fs) => {
    await fs.put(LONGEST, 'long');
    await fs.rename(LONGEST, `m${LONGEST.slice(1)}`);
    await fs.mkdir(LONGEST);
    await fs.symlink('x', `${LONGEST}/${LONGEST}`);

    expect(await fs.text(`m${LONGEST.slice(1)}`)).toBe('long');
    expect(await fs.names(LONGEST)).toEqual([LONGEST]);
  }),
  scenario('255 bytes are counted in UTF-8, not in characters', async (fs) => {
    const name = '語'.repeat(85);
    await fs.put(name, 'x');

    expect(await fs.names()).toEqual([name]);
    await fails('ENAMETOOLONG', fs.put(`${name}x`));
  }),
  scenario('a name of 256 bytes is ENAMETOOLONG for every call that takes one', async (fs) => {
    await fs.put('file');

    await fails('ENAMETOOLONG', fs.open(TOO_LONG, O_WRONLY | O_CREAT));
    await fails('ENAMETOOLONG', fs.open(TOO_LONG, O_RDONLY));
    await fails('ENAMETOOLONG', fs.stat(TOO_LONG));
    await fails('ENAMETOOLONG', fs.mkdir(TOO_LONG));
    await fails('ENAMETOOLONG', fs.rmdir(TOO_LONG));
    await fails('ENAMETOOLONG', fs.unlink(TOO_LONG));
    await fails('ENAMETOOLONG', fs.symlink('x', TOO_LONG));
    await fails('ENAMETOOLONG', fs.rename('file', TOO_LONG));
    await fails('ENAMETOOLONG', fs.rename(TOO_LONG, 'file'));
    await fails('ENAMETOOLONG', fs.truncate(TOO_LONG, 0));
    expect(await fs.names()).toEqual(['file']);
  }),
  scenario('a path of 4096 bytes is ENAMETOOLONG', ['process'], async (fs) => {
    const path = 'x/'.repeat(2048);

    await fails('ENAMETOOLONG', fs.stat(path));
    await fails('ENAMETOOLONG', fs.mkdir(path));
  }),
  scenario('a path of nearly 4096 bytes reaches its file', ['process'], async (fs) => {
    const step = 'd'.repeat(199);
    let path = '';
    for (let depth = 0; depth < 19; depth++) {
      path += path === '' ? step : `/${step}`;
      await fs.mkdir(path);
    }
    await fs.put(`${path}/${'f'.repeat(250)}`, 'deep');

    expect(await fs.text(`${path}/${'f'.repeat(250)}`)).toBe('deep');
  }),
  scenario('100 folders one inside the other', async (fs) => {
    const path = Array.from({ length: 100 }, (_, depth) => `d${depth}`);
    for (let depth = 1; depth <= path.length; depth++) await fs.mkdir(path.slice(0, depth).join('/'));
    await fs.put(`${path.join('/')}/file`, 'deep');

    expect(await fs.text(`${path.join('/')}/file`)).toBe('deep');
  }),
  scenario('a name that is not UTF-8 is kept as it is', ['process'], async (fs) => {
    const name = Buffer.from([0x66, 0xff, 0xfe, 0x67]);
    await fs.put(name, 'x');

    expect((await fs.lstat(name)).kind).toBe('file');
    await fs.unlink(name);
  }),
  scenario('. and .. are found, and cannot be made or removed', ['process'], async (fs) => {
    await fs.mkdir('folder');
    const { ino } = await fs.stat('');

    expect((await fs.stat('folder/..')).ino).toBe(ino);
    expect((await fs.stat('folder/.')).ino).toBe((await fs.stat('folder')).ino);
    await fails('EEXIST', fs.mkdir('folder/.'));
    await fails('EEXIST', fs.mkdir('folder/..'));
    await fails('EINVAL', fs.rmdir('folder/.'));
    await fails('ENOTEMPTY', fs.rmdir('folder/..'));
    await fails(['EBUSY', 'EINVAL'], fs.rename('folder/.', 'other'));
  }),
  scenario('a trailing slash asks for a folder', ['process'], async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');

    expect((await fs.stat('folder/')).kind).toBe('folder');
    await fails('ENOTDIR', fs.stat('file/'));
    await fails(['EISDIR', 'ENOENT'], fs.open('new/', O_WRONLY | O_CREAT));
    await fails('ENOTDIR', fs.unlink('file/'));
    await fs.mkdir('made/');
    expect(await fs.names()).toEqual(['file', 'folder', 'made']);
  }),
];

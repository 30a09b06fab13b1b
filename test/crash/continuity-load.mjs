// Load for a mount whose process is killed meanwhile: node continuity-load.mjs DIRECTORY MILLISECONDS SEED
// STOP. It ends after that time, or when the file STOP exists.
//
// Each thread checks every result against a model of its own. Prints its calls so far, and at the end one line of JSON: the calls, and what
// was wrong.
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const PATTERN_BYTES = 2 * 1024 * 1024;
const LISTED = 300;
const SAVE_BYTES = 20_000;
/** open(2); Node does not name it. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
const KINDS = ['names', 'names', 'reader', 'lister', 'saver', 'writer', 'appender', 'appender', 'unlinker'];

/** The byte of the pattern file at each position differs from its neighbours. @param {number} at */
const patternAt = (at) => (at * 31 + (at >> 8) * 7) & 0xff;

/** @param {number} seed */
function randomOf(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** @param {() => void} act @returns {string | null} */
function codeOf(act) {
  try {
    act();
    return null;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code ?? String(error);
  }
}

if (isMainThread) {
  const [directory = '', milliseconds = '1000', seed = '1', stop = ''] = process.argv.slice(2);
  mkdirSync(join(directory, 'listed'));
  for (let i = 0; i < LISTED; i++) closeSync(openSync(join(directory, 'listed', `entry-${i}`), 'w'));
  writeFileSync(
    join(directory, 'pattern'),
    Buffer.from(Array.from({ length: PATTERN_BYTES }, (_, at) => patternAt(at))),
  );
  process.stdout.write('ready\n');
  const endMs = Date.now() + Number(milliseconds);
  const total = { calls: 0, wrong: /** @type {string[]} */ ([]) };
  let running = KINDS.length;
  KINDS.forEach((kind, index) => {
    const worker = new Worker(new URL(import.meta.url), {
      workerData: { kind, directory, index, endMs, stop, seed: Number(seed) + index },
    });
    worker.on('error', (error) => total.wrong.push(`${kind}: ${error.stack}`));
    worker.on('message', ({ calls, wrong = [] }) => {
      total.calls += calls;
      process.stdout.write(`calls ${total.calls}\n`);
      total.wrong.push(...wrong);
    });
    worker.on('exit', () => {
      if (--running === 0) console.log(JSON.stringify(total));
    });
  });
} else {
  const { kind, directory, index, endMs, stop, seed } = workerData;
  const random = randomOf(seed);
  let calls = 0;
  let toldCalls = 0;
  /** @type {string[]} */
  const wrong = [];
  const isOver = () => {
    if (calls - toldCalls >= 50) {
      parentPort?.postMessage({ calls: calls - toldCalls });
      toldCalls = calls;
    }
    return isEnd();
  };
  const isEnd = () => Date.now() >= endMs || wrong.length >= 5 || existsSync(stop);
  /** @param {string} what @param {() => void} act @param {string | null} wanted */
  const expectCode = (what, act, wanted = null) => {
    calls++;
    const code = codeOf(act);
    if (code !== wanted)
      wrong.push(`${kind} ${index}: ${what} was ${code ?? 'successful'}, not ${wanted ?? 'successful'}`);
  };

  if (kind === 'names') {
    const folder = join(directory, `names-${index}`);
    mkdirSync(folder);
    /** @type {Map<string, 'file' | 'folder' | string>} a link has its target */
    const model = new Map();
    let next = 0;
    while (!isOver()) {
      const names = [...model.keys()];
      const name = names[random(names.length)];
      const path = name === undefined ? '' : join(folder, name);
      const fresh = `n${next++}`;
      const at = join(folder, fresh);
      const choice = names.length > 40 ? 4 + random(2) : random(6);
      if (choice === 0) {
        expectCode(`open ${fresh} with O_EXCL`, () => {
          const fd = openSync(at, 'wx');
          closeSync(fd);
        });
        model.set(fresh, 'file');
      } else if (choice === 1) {
        expectCode(`mkdir ${fresh}`, () => mkdirSync(at));
        model.set(fresh, 'folder');
      } else if (choice === 2) {
        expectCode(`symlink ${fresh}`, () => symlinkSync(`to-${fresh}`, at));
        model.set(fresh, `to-${fresh}`);
      } else if (name === undefined) {
        expectCode(`lstat ${fresh}`, () => lstatSync(at), 'ENOENT');
      } else if (choice === 3) {
        expectCode(`rename ${name} ${fresh}`, () => renameSync(path, at));
        model.set(fresh, /** @type {string} */ (model.get(name)));
        model.delete(name);
        expectCode(`lstat ${name} after its rename`, () => lstatSync(path), 'ENOENT');
      } else {
        const isFolder = model.get(name) === 'folder';
        expectCode(`remove ${name}`, () => (isFolder ? rmdirSync(path) : unlinkSync(path)));
        model.delete(name);
        expectCode(`lstat ${name} after its removal`, () => lstatSync(path), 'ENOENT');
      }
      const one = [...model][random(model.size)];
      if (one?.[1].startsWith('to-')) {
        expectCode(`readlink ${one[0]}`, () => {
          const target = readlinkSync(join(folder, one[0]));
          if (target !== one[1]) wrong.push(`${one[0]} leads to ${target}, not ${one[1]}`);
        });
      }
      if (random(10) > 0) continue;
      expectCode('readdir', () => {
        const shown = readdirSync(folder).sort().join();
        const wanted = [...model.keys()].sort().join();
        if (shown !== wanted) wrong.push(`names ${index}: ${shown} instead of ${wanted}`);
      });
    }
  } else if (kind === 'reader') {
    const path = join(directory, 'pattern');
    const held = openSync(path, 'r');
    let fresh = openSync(path, 'r');
    const bytes = Buffer.alloc(64 * 1024);
    while (!isOver()) {
      if (random(4) === 0) {
        expectCode('close', () => closeSync(fresh));
        expectCode('open', () => {
          fresh = openSync(path, 'r');
        });
      }
      const start = random(PATTERN_BYTES - bytes.length);
      expectCode('read', () => {
        const length = readSync(random(2) === 0 ? held : fresh, bytes, 0, bytes.length, start);
        let differs = length === bytes.length ? -1 : length;
        for (let i = 0; i < length && differs < 0; i++) if (bytes[i] !== patternAt(start + i)) differs = i;
        if (differs >= 0) wrong.push(`reader: wrong byte at ${start + differs}`);
      });
    }
  } else if (kind === 'lister') {
    while (!isOver()) {
      expectCode('readdir', () => {
        const names = readdirSync(join(directory, 'listed'));
        if (names.length !== LISTED || new Set(names).size !== LISTED) wrong.push(`lister: ${names.length} entries`);
      });
    }
  } else if (kind === 'writer') {
    // One descriptor is open over all deaths. The file is small or large, in turn: both kinds of draft.
    const path = join(directory, 'written');
    let fd = openSync(path, 'w+');
    let model = Buffer.alloc(0);
    for (let round = 1; !isOver(); round++) {
      const limit = round % 400 < 200 ? 30_000 : 300_000;
      const start = random(limit);
      const choice = random(40);
      if (choice === 0) {
        expectCode('ftruncate', () => ftruncateSync(fd, start));
        const next = Buffer.alloc(start);
        model.copy(next);
        model = next;
      } else if (choice === 1) {
        expectCode('close', () => closeSync(fd));
        const isKept = random(2) === 0;
        expectCode('open', () => {
          fd = openSync(path, isKept ? 'r+' : 'w+');
        });
        if (!isKept) model = Buffer.alloc(0);
      } else if (choice === 2) {
        expectCode('fsync', () => fsyncSync(fd));
      } else {
        const bytes = Buffer.alloc(1 + random(5000), round & 0xff);
        if (start + bytes.length > model.length) {
          const next = Buffer.alloc(start + bytes.length);
          model.copy(next);
          model = next;
        }
        bytes.copy(model, start);
        expectCode('write', () => void writeSync(fd, bytes, 0, bytes.length, start));
      }
      if (random(4) > 0) continue;
      expectCode('read of what was written', () => {
        const { size } = fstatSync(fd);
        const found = Buffer.alloc(model.length + 10);
        const length = readSync(fd, found, 0, found.length, 0);
        if (size !== model.length || length !== model.length || !found.subarray(0, length).equals(model))
          wrong.push(`writer: round ${round} has ${size} bytes, reads ${length}, instead of ${model.length}`);
      });
    }
    closeSync(fd);
  } else if (kind === 'unlinker') {
    // A file without a name: deleted while open, or opened without one, in turn.
    const path = join(directory, 'scratch');
    for (let round = 1; !isOver(); round++) {
      const bytes = Buffer.alloc(1 + random(60_000), round & 0xff);
      const isNamed = round % 2 === 1;
      let fd = -1;
      expectCode('open of a scratch file', () => {
        fd = isNamed ? openSync(path, 'w+') : openSync(directory, O_TMPFILE | constants.O_RDWR);
      });
      expectCode('write', () => void writeSync(fd, bytes, 0, bytes.length, 0));
      if (isNamed) expectCode('removal of an open file', () => unlinkSync(path));
      for (let part = 0; part < 8; part++) {
        const at = random(bytes.length);
        const length = Math.min(1000, bytes.length - at);
        bytes.fill(part, at, at + length);
        expectCode('write without a name', () => void writeSync(fd, bytes, at, length, at));
      }
      expectCode('read without a name', () => {
        const found = Buffer.alloc(bytes.length + 1);
        const { size, nlink } = fstatSync(fd);
        const length = readSync(fd, found, 0, found.length, 0);
        if (size !== bytes.length || nlink !== 0 || length !== size || !found.subarray(0, length).equals(bytes))
          wrong.push(
            `unlinker: round ${round}: ${length} of ${size} bytes, ${nlink} names, instead of ${bytes.length}`,
          );
      });
      expectCode('close without a name', () => closeSync(fd));
      expectCode('lstat after the removal', () => lstatSync(path), 'ENOENT');
    }
  } else if (kind === 'appender') {
    // Two of them append to one file, each through a descriptor of its own.
    const path = join(directory, 'log');
    const fd = openSync(path, 'a');
    for (let line = 0; !isOver(); line++) {
      expectCode('append', () => void writeSync(fd, `${index} ${String(line).padStart(9)}\n`));
      if (random(200) > 0) continue;
      expectCode('read of the lines', () => {
        const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
        const torn = lines.find((each) => each.length !== `${index} `.length + 9);
        const own = lines.filter((each) => each.startsWith(`${index} `)).map((each) => Number(each.split(' ').at(-1)));
        const at = own.findIndex((number, place) => number !== place);
        if (own.length !== line + 1 || at >= 0 || torn !== undefined)
          wrong.push(`appender ${index}: ${own.length} lines of ${line + 1}, wrong at ${at}, torn: ${torn}`);
      });
    }
    closeSync(fd);
  } else {
    const path = join(directory, 'saved');
    for (let round = 0; !isOver(); round++) {
      const now = Buffer.alloc(SAVE_BYTES + random(1000), `round ${round} `);
      let fd = -1;
      expectCode('open to save', () => {
        fd = openSync(path, 'w');
      });
      const half = random(now.length);
      expectCode('write', () => void writeSync(fd, now, 0, half));
      expectCode('write', () => void writeSync(fd, now, half));
      expectCode('close', () => closeSync(fd));
      expectCode('read of what was saved', () => {
        const found = readFileSync(path);
        if (!found.equals(now))
          wrong.push(`saver: round ${round} left ${found.length} bytes: ${found.subarray(0, 20)}`);
      });
    }
  }
  parentPort?.postMessage({ calls: calls - toldCalls, wrong });
}

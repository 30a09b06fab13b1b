// Load for a mount whose process is killed meanwhile: node continuity-load.mjs DIRECTORY MILLISECONDS SEED
// STOP. It ends after that time, or when the file STOP exists.
//
// Each thread checks every result against a model of its own. The only failure that the model allows is EIO for a file that was open for
// writing. Prints its calls
// so far, and at the end one line of JSON: the calls, the failed saves, and what was wrong.
import {
  closeSync,
  existsSync,
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
const KINDS = ['names', 'names', 'reader', 'lister', 'saver'];

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
  const total = { calls: 0, failedSaves: 0, wrong: /** @type {string[]} */ ([]) };
  let running = KINDS.length;
  KINDS.forEach((kind, index) => {
    const worker = new Worker(new URL(import.meta.url), {
      workerData: { kind, directory, index, endMs, stop, seed: Number(seed) + index },
    });
    worker.on('error', (error) => total.wrong.push(`${kind}: ${error.stack}`));
    worker.on('message', ({ calls, failedSaves = 0, wrong = [] }) => {
      total.calls += calls;
      process.stdout.write(`calls ${total.calls}\n`);
      total.failedSaves += failedSaves;
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
  let failedSaves = 0;
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
          codeOf(() => closeSync(fd)); // EIO where the process died in between
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
  } else {
    const path = join(directory, 'saved');
    let before = Buffer.alloc(0);
    for (let round = 0; !isOver(); round++) {
      const now = Buffer.alloc(SAVE_BYTES + random(1000), `round ${round} `);
      calls++;
      let fd = -1;
      const codes = [
        codeOf(() => {
          fd = openSync(path, 'w');
        }),
        ...(fd < 0 ? [] : [codeOf(() => void writeSync(fd, now)), codeOf(() => closeSync(fd))]),
      ].filter((code) => code !== null);
      if (codes.length > 0) failedSaves++;
      const others = codes.filter((code) => code !== 'EIO');
      if (others.length > 0 || fd < 0) wrong.push(`saver: ${others.join()} ${fd}`);
      expectCode('read of what was saved', () => {
        const found = readFileSync(path);
        const isNew = found.equals(now);
        if (!isNew && (codes.length === 0 || !found.equals(before)))
          wrong.push(`saver: round ${round} (${codes}) left ${found.length} bytes: ${found.subarray(0, 20)}`);
        before = found;
      });
    }
  }
  parentPort?.postMessage({ calls: calls - toldCalls, failedSaves, wrong });
}

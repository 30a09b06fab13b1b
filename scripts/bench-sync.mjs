// The gates for small files and names (single calls, unpacking, listing, deleting) with a latency of 30 ms, compared with rclone's
// mount of the same server in the same run. Every figure is a median over rounds; rclone, whose round takes two minutes, has one.
//   --quick    one round of fewer files; not measured: how long rclone removes them (long, for one gate), and peers that no gate asks for
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Ground, run } from './measure/ground.mjs';
import { OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 3;
const RCLONE_ROUNDS = 1;
const FILES = quick ? 100 : 1000;
const FOLDERS = 40;
const CALLS = 1000;
const WARM_FILES = quick ? 1500 : 3000;
const PATIENCE_MS = 180_000;
/** @type {Record<string, string>} */
const CALL_NAMES = { mkdir: 'mkdir', close: 'close of 4 KiB that were written', rename: 'rename', unlink: 'unlink' };
const UNPACK_HERE = `unpack ${FILES} files until the last close`;
const UNPACK_COLD = `unpack ${FILES} files as the first thing that a mount does`;
const UNPACK_THERE = '… until the server has it';
const REQUESTS = '… requests to the server for it';
const FIRST_LISTING = 'first ls -lR';
const REMOVE_HERE = 'rm -r, here';
const REMOVE_THERE = '… on the server';

const results = new Results('sync', { rounds: ROUNDS, quick, files: FILES });
const ground = await Ground.lay({ serveFlags: ['--latency', '30ms'] });
try {
  // 2–20 KiB each, the same in every round: the lengths come from a fixed sequence.
  const tree = ground.directory('tree/unpacked');
  for (let i = 0; i < FILES; i++) {
    const folder = join(tree, `folder-${String(i % FOLDERS).padStart(2, '0')}`);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `file-${i}.bin`), Buffer.alloc(2048 + ((i * 7919) % 18_432), i & 0xff));
  }
  const archive = join(ground.base, 'tree.tar');
  run(`tar -cf ${archive} -C ${join(ground.base, 'tree')} unpacked`);
  const ours = ground.mount('ours');
  // rclone makes top-level folders in another way (docs/service.md 13.9): it gets one of its own to work in.
  run(`mkdir ${ours.directory}/theirs`);
  ours.cfs('sync', '--wait');
  const theirs = await ground.rclone('rclone');
  const local = [['ext4', ground.directory('plain')]];
  const bound = quick ? null : ground.bindfs('bound'); // no gate asks for it
  if (bound !== null) local.push(['bindfs', bound]);

  // A mount runs for days, but its code is compiled in its first seconds: they are a row of their own. A file that is created and
  // deleted immediately is never pushed.
  for (let files = 0; files < WARM_FILES; files += FILES) {
    const { seconds } = run(`tar -xf ${archive} -C ${ours.directory}`);
    if (files === 0) results.note(UNPACK_COLD, 's', OURS, seconds);
    run(`rm -r ${ours.directory}/unpacked`);
  }
  ours.cfs('sync', '--wait');

  for (let round = 0; round < ROUNDS; round++) {
    for (const [peer, directory] of local) {
      results.note(UNPACK_HERE, 's', peer, run(`tar -xf ${archive} -C ${directory}`).seconds);
      run(`rm -r ${directory}/unpacked`);
    }
    const name = `round-${round}`;
    run(`mkdir ${ours.directory}/${name}`);
    const before = requestsOf(ours);
    const start = performance.now();
    results.note(UNPACK_HERE, 's', OURS, run(`tar -xf ${archive} -C ${ours.directory}/${name}`).seconds);
    ours.cfs('sync', '--wait');
    results.note(UNPACK_THERE, 's', OURS, (performance.now() - start) / 1000);
    results.note(REQUESTS, 'number', OURS, requestsOf(ours) - before);

    const beside = round < RCLONE_ROUNDS ? theirs : null;
    if (beside !== null) {
      const there = `theirs/${name}`;
      run(`mkdir ${beside.directory}/${there}`);
      const begun = performance.now();
      results.note(UNPACK_HERE, 's', 'rclone', run(`tar -xf ${archive} -C ${beside.directory}/${there}`).seconds);
      await until(async () => (await ground.serverFiles(there)) >= FILES);
      results.note(UNPACK_THERE, 's', 'rclone', (performance.now() - begun) / 1000);
    }

    // The first listing of the folder, by a mount that has never seen it.
    const fresh = ground.mount(`fresh-${round}`);
    results.note(FIRST_LISTING, 's', OURS, run(`ls -lR ${fresh.directory}/${name} | wc -l`).seconds);
    ground.unmount(fresh.directory);
    const cold = beside === null ? null : await ground.rclone(`cold-${round}`);
    if (cold !== null) {
      results.note(FIRST_LISTING, 's', 'rclone', run(`ls -lR ${cold.directory}/${name} | wc -l`).seconds);
      ground.unmount(cold.directory);
    }

    const removal = performance.now();
    results.note(REMOVE_HERE, 's', OURS, run(`rm -r ${ours.directory}/${name}`).seconds);
    ours.cfs('sync', '--wait');
    results.note(REMOVE_THERE, 's', OURS, (performance.now() - removal) / 1000);
    if (beside !== null && !quick) {
      results.note(REMOVE_THERE, 's', 'rclone', run(`rm -r ${beside.directory}/theirs/${name}`).seconds);
    }
  }
  const called = singleCalls();

  // The figures are seconds: at most 0.2 of the other program's time means at least five times as fast.
  results.gate(UNPACK_HERE, 'at most', 0.2, 'rclone');
  results.gate(UNPACK_HERE, 'at most', 3, 'ext4');
  results.gate(UNPACK_THERE, 'at most', 0.166, 'rclone');
  results.gate(REQUESTS, 'at most', 2 * FILES + 150);
  results.gate(FIRST_LISTING, 'at most', 0.333, 'rclone');
  results.gate(REMOVE_HERE, 'at most', 0.5);
  results.gate(REMOVE_THERE, 'at most', 0.1, 'rclone');
  for (const [median, slowest] of called) {
    results.gate(median, 'at most', 100);
    results.gate(slowest, 'at most', 2000);
  }
  process.exitCode = results.finish();
} finally {
  await ground.clear();
}

/** Calls that change names, in a separate mount that pushes nothing meanwhile, and on ext4. @returns the measures, in pairs */
function singleCalls() {
  const program = join(ground.base, 'bench-names');
  const source = fileURLToPath(new URL('bench-names.c', import.meta.url));
  if (spawnSync('cc', ['-O2', '-w', '-o', program, source]).status !== 0) {
    console.log('single calls: not measured, there is no cc');
    return [];
  }
  const calm = ground.mount('calm', ['--settle', '10min', '--drain', '0s']);
  const places = [
    [OURS, ground.directory('calm/calls')],
    ...(quick ? [] : [['ext4', ground.directory('plain/calls')]]),
  ];
  const measures = new Map();
  for (let round = -1; round < ROUNDS; round++) {
    for (const [peer, directory] of places) {
      const measured = JSON.parse(
        execFileSync(program, [directory, `${CALLS}`], { encoding: 'utf8', timeout: 60_000 }),
      );
      if (round < 0) continue; // a mount runs for days: its first second is not measured
      for (const [call, { p50, p99 }] of Object.entries(measured)) {
        const names = [`${CALL_NAMES[call]}, median`, `${CALL_NAMES[call]}, p99`];
        results.note(names[0], 'µs', peer, p50);
        results.note(names[1], 'µs', peer, p99);
        measures.set(call, names);
      }
    }
  }
  ground.unmount(calm.directory);
  return [...measures.values()];
}

/**
 * rclone does not report its queue without a control port: the server is polled instead.
 * @param {() => boolean | Promise<boolean>} isDone
 */
async function until(isDone) {
  const begun = performance.now();
  while (!(await isDone())) {
    if (performance.now() - begun > PATIENCE_MS)
      throw new Error('rclone has not sent everything within the time limit');
    run('sleep 0.5');
  }
}

/**
 * Requests that a mount has sent since its start.
 * @param {import('./measure/ground.mjs').Mounted} mount
 */
function requestsOf(mount) {
  return Number(/^cfs_requests_total(?:\{[^}]*\})? (\d+)/m.exec(mount.cfs('metrics'))?.[1]);
}

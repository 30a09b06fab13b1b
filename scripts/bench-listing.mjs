// `npm run bench -- listing [--quick]`: first listings with the server 30 ms away and pages of 500, compared with rclone's mount of the
// same server in the same rounds. The last round also removes a folder of 100,000 entries, and finds 90,000 files. `--quick`: one round,
// without these.
import { readFileSync } from 'node:fs';
import { Ground, run } from './measure/ground.mjs';
import { OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 3;
const PAGE_ENTRIES = 500;
const FLAT = 10_000;
const HUGE = 100_000;
const FOLDERS = 40;
const FILES = 50;
const DEEP = { folders: 900, files: 100 };
const AT_ONCE = 16;

const FIRST = `first ls -l of ${FLAT} entries`;
const REQUESTS = '… requests';
const LARGEST = `first ls of ${HUGE} entries`;
const LARGEST_MEMORY = '… private memory, peak';
const REMOVED = `rm -r of ${HUGE} listed entries, here`;
const FOUND = `first find over ${DEEP.folders * DEEP.files} files`;
const FOUND_MEMORY = '… private memory during find, peak';
/** A walk visits all folders of its directory once. @type {[measure: string, command: string][]} */
const WALKS = [
  ['walk forward', 'for d in $(ls); do ls -l $d; done | wc -l'],
  ['walk backward', 'for d in $(ls -r); do ls -l $d; done | wc -l'],
  ['walk in no order', 'for d in $(ls | sort -R --random-source=/bin/sh); do ls -l $d; done | wc -l'],
  ['walk by four processes', 'ls | xargs -P 4 -n 1 ls -l | wc -l'],
];
const walkMeasure = (/** @type {string} */ walk) => `first ${walk} of ${FOLDERS} × ${FILES}`;

const results = new Results('listing', { rounds: ROUNDS, quick });
const ground = await Ground.lay();
try {
  const home = await ground.home();
  await fill(await ground.newFolder(home, 'flat'), FLAT);
  for (let at = 0; at < WALKS.length; at++) {
    const walked = await ground.newFolder(home, `walk-${at}`);
    for (let folder = 0; folder < FOLDERS; folder++)
      await fill(await ground.newFolder(walked, `folder-${String(folder).padStart(2, '0')}`), FILES);
  }
  if (!quick) {
    await fill(await ground.newFolder(home, 'huge'), HUGE);
    const deep = await ground.newFolder(home, 'deep');
    for (let folder = 0; folder < DEEP.folders; folder++)
      await fill(await ground.newFolder(deep, `folder-${folder}`), DEEP.files);
  }
  await ground.move(['--latency', '30ms']);
  // The server answers the first listing of a folder more slowly, and our mount comes before rclone in each round.
  for (const folder of ['flat', ...WALKS.map((_, at) => `walk-${at}`)]) await ground.serverFiles(folder);
  for (let round = 0; round < ROUNDS; round++) {
    const ours = ground.mount(`ours-${round}`);
    measure(OURS, ours.directory);
    if (!quick) {
      results.note(LARGEST, 's', OURS, run(`ls ${ours.directory}/huge | wc -l`).seconds);
      results.note(LARGEST_MEMORY, 'MiB', OURS, peakMiB(ours.pid));
    }
    await ground.discard(ours);

    // Alone in a mount, because the other figures include the walks.
    const counted = ground.mount(`counted-${round}`);
    run(`ls ${counted.directory}`);
    const start = requestsOf(counted);
    run(`ls -l ${counted.directory}/flat | wc -l`);
    results.note(REQUESTS, 'number', OURS, requestsOf(counted) - start);
    await ground.discard(counted);

    const theirs = await ground.rclone(`rclone-${round}`);
    if (theirs === null) continue;
    measure('rclone', theirs.directory);
    if (!quick) results.note(LARGEST, 's', 'rclone', run(`ls ${theirs.directory}/huge | wc -l`).seconds);
    await ground.discard(theirs);
  }
  if (!quick) {
    const found = ground.mount('found');
    const { seconds, out } = run(`find ${found.directory}/deep -type f | wc -l`);
    if (Number(out) !== DEEP.folders * DEEP.files) throw new Error(`find: ${out.trim()} files`);
    results.note(FOUND, 's', OURS, seconds);
    results.note(FOUND_MEMORY, 'MiB', OURS, peakMiB(found.pid));
    await ground.discard(found);

    const removing = ground.mount('removing');
    run(`ls ${removing.directory}/huge | wc -l`);
    results.note(REMOVED, 's', OURS, run(`rm -r ${removing.directory}/huge`).seconds);
    await ground.discard(removing);
  }
  results.gate(FIRST, 'at most', 0.5, 'rclone');
  results.gate(REQUESTS, 'at most', Math.ceil(FLAT / PAGE_ENTRIES) + 3);
  for (const [walk] of WALKS) results.gate(walkMeasure(walk), 'at most', 0.35, 'rclone');
  if (!quick) {
    results.gate(LARGEST, 'at most', 8);
    results.gate(LARGEST_MEMORY, 'at most', 150);
    results.gate(FOUND_MEMORY, 'at most', 130);
    results.gate(REMOVED, 'at most', 8);
  }
  process.exitCode = results.finish();
} finally {
  await ground.clear();
}

/**
 * The first listings of one mount, in the same order for every peer.
 * @param {string} peer
 * @param {string} directory
 */
function measure(peer, directory) {
  run(`ls ${directory}`);
  const { seconds, out } = run(`ls -l ${directory}/flat | wc -l`);
  if (Number(out) !== FLAT + 1) throw new Error(`${peer}: ${out.trim()} lines of ${FLAT + 1}`);
  results.note(FIRST, 's', peer, seconds);
  WALKS.forEach(([walk, command], at) => {
    const walked = run(command, { cwd: `${directory}/walk-${at}` });
    if (Number(walked.out) !== FOLDERS * (FILES + 1)) throw new Error(`${peer}, ${walk}: ${walked.out.trim()} lines`);
    results.note(walkMeasure(walk), 's', peer, walked.seconds);
  });
}

/**
 * Creates empty files on the server.
 * @param {string} folder
 * @param {number} count
 */
async function fill(folder, count) {
  let next = 0;
  const worker = async () => {
    while (next < count) await ground.newFile(folder, `file-${String(next++).padStart(6, '0')}.txt`);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/**
 * Requests that a mount has sent since its start.
 * @param {import('./measure/ground.mjs').Mounted} mount
 */
function requestsOf(mount) {
  return Number(/^cfs_requests_total(?:\{[^}]*\})? (\d+)/m.exec(mount.cfs('metrics'))?.[1]);
}

/**
 * The largest private memory of a process so far: its peak without what it has from files now.
 * @param {number} pid
 */
function peakMiB(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const of = (/** @type {string} */ name) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]);
  return (of('VmHWM') - of('RssFile') - of('RssShmem')) / 1024;
}

// The gates of bytes: reading what is not here, reading it again, writing, and uploading, with the server 30 ms away at
// 25 MB/s per connection, and once without distance; beside rclone's mount, curl and ext4 in the same run.
import { randomFillSync } from 'node:crypto';
import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { Ground, median, privateMiB, run, writeResults } from './measure/ground.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 3;
const BIG_MIB = quick ? 64 : 256;
const HUGE_MIB = quick ? 128 : 1024;
const CONNECTION_MB_PER_SECOND = 25;

const samples = {};
function note(measure, peer, value) {
  samples[measure] ??= {};
  samples[measure][peer] ??= [];
  samples[measure][peer].push(value);
}

/** A file of bytes that no two places share. */
function bytesFile(path, mib) {
  const fd = openSync(path, 'w');
  const block = Buffer.alloc(1024 ** 2);
  for (let i = 0; i < mib; i++) {
    if (i % 16 === 0) randomFillSync(block);
    block.writeUInt32LE(i, 0);
    writeSync(fd, block);
  }
  closeSync(fd);
}

/** Single reads timed inside one process, after `setup`: prints milliseconds. */
function timedReads(file, offsets, length) {
  const script = `const fs=require('fs');const fd=fs.openSync(${JSON.stringify(file)},'r');const b=Buffer.alloc(${length});
    const t=[];for(const o of ${JSON.stringify(offsets)}){const s=performance.now();fs.readSync(fd,b,0,${length},o);t.push(performance.now()-s);}
    console.log(JSON.stringify(t));`;
  return JSON.parse(run(`node -e '${script.replaceAll("'", "'\\''")}'`).out);
}

async function far() {
  const ground = await Ground.lay({
    serveFlags: ['--latency', '30ms', '--bandwidth', `${CONNECTION_MB_PER_SECOND}MB`],
  });
  try {
    const writer = ground.mount('writer');
    bytesFile(join(ground.base, 'big'), BIG_MIB);
    for (let round = 0; round < ROUNDS; round++) run(`cp ${ground.base}/big ${writer.directory}/big-${round}`);
    bytesFile(join(ground.base, 'huge'), HUGE_MIB);

    const start = process.hrtime.bigint();
    const written = run(`dd if=${ground.base}/huge of=${writer.directory}/huge bs=1M 2>/dev/null`).seconds;
    note('write 1 MiB calls until close, MB/s', 'cfs-mount', (HUGE_MIB * 1.048576) / written);
    note(
      'write 1 MiB calls until close, MB/s',
      'ext4',
      (HUGE_MIB * 1.048576) / run(`dd if=${ground.base}/huge of=${ground.base}/copy bs=1M 2>/dev/null`).seconds,
    );
    writer.cfs('sync', '--wait');
    note('until the server has it all, s', 'cfs-mount', Number(process.hrtime.bigint() - start) / 1e9);

    for (let round = 0; round < ROUNDS; round++) {
      const reader = ground.mount(`reader-${round}`);
      run(`ls ${reader.directory}`);
      note(
        'first sequential read, MB/s',
        'cfs-mount',
        (BIG_MIB * 1.048576) / run(`cat ${reader.directory}/big-${round} > /dev/null`).seconds,
      );
      note('first byte of the large file, ms', 'cfs-mount', timedReads(`${reader.directory}/huge`, [0], 1)[0]);
      note(
        'its last 100 bytes, ms',
        'cfs-mount',
        timedReads(`${reader.directory}/huge`, [HUGE_MIB * 1024 ** 2 - 100], 100)[0],
      );
      const offsets = Array.from({ length: quick ? 40 : 200 }, (_, i) => 4096 * ((i * 104_729) % (HUGE_MIB * 256)));
      const times = timedReads(`${reader.directory}/huge`, offsets, 4096);
      note('random 4 KiB read, mean ms', 'cfs-mount', times.reduce((sum, each) => sum + each, 0) / times.length);
      note('private memory, MiB', 'cfs-mount', privateMiB(reader.pid()));
      ground.unmount(reader.directory);

      const theirs = await ground.rclone(`rclone-${round}`);
      if (theirs !== null) {
        run(`ls ${theirs.directory}`);
        note(
          'first sequential read, MB/s',
          'rclone',
          (BIG_MIB * 1.048576) / run(`cat ${theirs.directory}/big-${round} > /dev/null`).seconds,
        );
        ground.unmount(theirs.directory);
      }

      const again = ground.mount(`again-${round}`, [], `reader-${round}`);
      run('sync; echo 1 > /proc/sys/vm/drop_caches || true');
      note(
        'read again after a restart, MB/s',
        'cfs-mount, first',
        (BIG_MIB * 1.048576) / run(`cat ${again.directory}/big-${round} > /dev/null`).seconds,
      );
      run('sync; echo 1 > /proc/sys/vm/drop_caches || true');
      note(
        'read again after a restart, MB/s',
        'cfs-mount, then',
        (BIG_MIB * 1.048576) / run(`cat ${again.directory}/big-${round} > /dev/null`).seconds,
      );
      run('sync; echo 1 > /proc/sys/vm/drop_caches || true');
      note(
        'read again after a restart, MB/s',
        'ext4',
        (BIG_MIB * 1.048576) / run(`cat ${ground.base}/big > /dev/null`).seconds,
      );
      ground.unmount(again.directory);
    }
  } finally {
    await ground.clear();
  }
}

await far();
const table = Object.fromEntries(
  Object.entries(samples).map(([measure, by]) => [
    measure,
    Object.fromEntries(Object.entries(by).map(([peer, values]) => [peer, Number(median(values).toPrecision(3))])),
  ]),
);
console.table(table);
writeResults('content', { rounds: ROUNDS, bigMiB: BIG_MIB, hugeMiB: HUGE_MIB, table, samples });

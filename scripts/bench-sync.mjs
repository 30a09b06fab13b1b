// The gates of small files and names (unpacking, listing, deleting) with the server 30 ms away, beside rclone's mount of the
// same server in the same run. Every figure is a median over rounds, and a ratio.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ground, median, run, writeResults } from './measure/ground.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 3;
const FILES = quick ? 200 : 1000;
const FOLDERS = 40;
const ground = await Ground.lay({ serveFlags: ['--latency', '30ms'] });
try {
  // 2–20 KiB each, the same in every round: lengths from a fixed row.
  const tree = ground.directory('tree/unpacked');
  for (let i = 0; i < FILES; i++) {
    const folder = join(tree, `folder-${String(i % FOLDERS).padStart(2, '0')}`);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `file-${i}.bin`), Buffer.alloc(2048 + ((i * 7919) % 18_432), i & 0xff));
  }
  const archive = join(ground.base, 'tree.tar');
  run(`tar -cf ${archive} -C ${join(ground.base, 'tree')} unpacked`);
  const ours = ground.mount('ours');
  // rclone makes top-level folders in another way (wire-facts 4.7): it gets one of its own to work in.
  run(`mkdir ${ours.directory}/theirs`);
  ours.cfs('sync', '--wait');
  const theirs = await ground.rclone('rclone');
  const plain = ground.directory('plain');

  const samples = {};
  const note = (measure, peer, value) => {
    samples[measure] ??= {};
    samples[measure][peer] ??= [];
    samples[measure][peer].push(value);
  };
  for (let round = 0; round < ROUNDS; round++) {
    note('unpack until the last close, s', 'ext4', run(`tar -xf ${archive} -C ${plain}`).seconds);
    run(`rm -r ${plain}/unpacked`);
    const name = `round-${round}`;
    run(`mkdir ${ours.directory}/${name}`);
    const start = process.hrtime.bigint();
    note('unpack until the last close, s', 'cfs-mount', run(`tar -xf ${archive} -C ${ours.directory}/${name}`).seconds);
    ours.cfs('sync', '--wait');
    note('unpack until the server has it, s', 'cfs-mount', Number(process.hrtime.bigint() - start) / 1e9);

    if (theirs !== null) {
      const there = `theirs/round-${round}`;
      run(`mkdir ${theirs.directory}/${there}`);
      const begun = process.hrtime.bigint();
      note(
        'unpack until the last close, s',
        'rclone',
        run(`tar -xf ${archive} -C ${theirs.directory}/${there}`).seconds,
      );
      // rclone says nothing about its queue without a control port: the server is asked.
      while ((await ground.serverFiles(there)) < FILES) run('sleep 0.5');
      note('unpack until the server has it, s', 'rclone', Number(process.hrtime.bigint() - begun) / 1e9);
    }

    // Listed for the first time: by a mount that has never seen it.
    const fresh = ground.mount(`fresh-${round}`);
    note('first ls -lR, s', 'cfs-mount', run(`ls -lR ${fresh.directory}/${name} | wc -l`).seconds);
    ground.unmount(fresh.directory);
    if (theirs !== null) {
      const cold = await ground.rclone(`cold-${round}`);
      note('first ls -lR, s', 'rclone', run(`ls -lR ${cold.directory}/${name} | wc -l`).seconds);
      ground.unmount(cold.directory);
    }

    const removal = process.hrtime.bigint();
    note('rm -r here, s', 'cfs-mount', run(`rm -r ${ours.directory}/${name}`).seconds);
    ours.cfs('sync', '--wait');
    note('rm -r on the server, s', 'cfs-mount', Number(process.hrtime.bigint() - removal) / 1e9);
    if (theirs !== null) {
      note('rm -r on the server, s', 'rclone', run(`rm -r ${theirs.directory}/theirs/round-${round}`).seconds);
    }
  }
  const table = {};
  for (const [measure, by] of Object.entries(samples)) {
    table[measure] = Object.fromEntries(
      Object.entries(by).map(([peer, values]) => [peer, Number(median(values).toPrecision(3))]),
    );
    if (by.rclone)
      table[measure]['rclone / cfs-mount'] = Number((median(by.rclone) / median(by['cfs-mount'])).toPrecision(3));
  }
  console.table(table);
  writeResults('sync', { rounds: ROUNDS, files: FILES, table, samples });
} finally {
  await ground.clear();
}

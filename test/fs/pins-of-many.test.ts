import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Pins } from '../../src/fs/pins.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

const FILES = 1_000;

/** A round of a start, of which nobody fetches anything, and the next one: each was one turn, with 100,000 files of seconds. */
test('the worker answers others while a round looks at a pinned folder in which everything is here', async () => {
  const side = await FileSystemSide.build();
  onTestFinished(() => side.close());
  const mount = new InProcessMount(side.fileSystem);
  for (let number = 0; number < FILES; number++) await mount.writeFile(`file ${number}`, Buffer.from('x'));
  const { store, tree, freshness, reader } = side;
  const { files } = side.fileSystem;
  const inOneTurn = { looked: 0, opened: 0 };
  const most = { ...inOneTurn };
  const count = (what: keyof typeof most): void => {
    if (inOneTurn.looked + inOneTurn.opened === 0)
      setImmediate(() => Object.assign(inOneTurn, { looked: 0, opened: 0 }));
    most[what] = Math.max(most[what], ++inOneTurn[what]);
  };
  const [node, acquire] = [tree.node.bind(tree), files.acquire.bind(files)];
  tree.node = (ino) => {
    count('looked');
    return node(ino);
  };
  files.acquire = (...of) => {
    count('opened');
    return acquire(...of);
  };
  const pins = new Pins({
    ...{ store, tree, freshness, reader, files, clock: systemClock, log: silentLogger },
    ...{ changes: side.changes, pinned: side.pinned },
    ...{ shutdown: new AbortController().signal, roundMs: 1 },
  });
  onTestFinished(() => pins.stop());

  pins.start();
  pins.pin(ROOT_INODE);
  await expect.poll(() => pins.stateOf(ROOT_INODE)).toMatchObject({ filesHere: FILES, isComplete: true });

  expect(most.opened).toBeLessThanOrEqual(50);
  expect(most.looked).toBeLessThanOrEqual(500);
});

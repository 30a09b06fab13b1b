import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { type Ground, plainGround } from '../harness/ground.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/** Large pictures and films of which programs want pieces, from a service: nothing of them is here. */

const FILM_MIB = Number(process.env.CFS_FILM_MIB ?? 24);
/** Pixels of a picture's side, 3 bytes each, stored in tiles as they are. */
const PICTURE_SIDE = Number(process.env.CFS_PICTURE_SIDE ?? 2_048);

const SHARP = new URL('../../node_modules/sharp/', import.meta.url).pathname;
const hasSharp = spawnSync(process.execPath, ['-e', `require('${SHARP}')`], { stdio: 'ignore' }).status === 0;

/** A player: the head, the index at the end, then it plays two pieces at each place to which somebody drags it, back and forth. */
const PLAY = `
  bytes() { dd if="$1" bs=64k skip="$2" count="$3" status=none; }
  { head -c 65536 "$1"; tail -c 300000 "$1"
    for percent in 10 60 61 30 95 5 60; do
      bytes "$1" $((${FILM_MIB} * 16 * percent / 100)) 16; bytes "$1" $((${FILM_MIB} * 16 * percent / 100 + 16)) 16
    done; } | sha256sum`;

/** A viewer that zooms in: five cuttings of 300 × 200. */
const ZOOM = `
  const sharp = require('${SHARP}'); const { createHash } = require('node:crypto'); const [file] = process.argv.slice(1);
  sharp.cache(false); sharp.concurrency(1);
  (async () => {
    const hash = createHash('sha256');
    for (const [x, y] of [[0, 0], [0.8, 0.8], [0.4, 0.1], [0.1, 0.7], [0.4, 0.1]]) {
      const at = { left: Math.floor(x * ${PICTURE_SIDE}), top: Math.floor(y * ${PICTURE_SIDE}), width: 300, height: 200 };
      hash.update(await sharp(file, { limitInputPixels: false }).extract(at).raw().toBuffer());
    }
    console.log(hash.digest('hex'));
  })();`;

const DRAW = `
  const sharp = require('${SHARP}'); const [file] = process.argv.slice(1); const side = ${PICTURE_SIDE};
  sharp({ create: { width: side, height: side, channels: 3, background: 'grey', noise: { type: 'gaussian', mean: 128, sigma: 60 } }, limitInputPixels: false })
    .tiff({ compression: 'none', tile: true, tileWidth: 256, tileHeight: 256, bigtiff: true }).toFile(file);`;

const missing = missingForMounts();
describe.skipIf(missing !== null)(`reads with seeks${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let plain: Ground;
  let first: MountFixture;
  beforeAll(async () => {
    plain = await plainGround();
    first = await MountFixture.start();
  });
  afterAll(async () => {
    await first?.dispose();
    await plain?.dispose();
  });

  /** Puts a file of the plain directory on the service. @returns it in a mount whose store is empty */
  async function elsewhere(name: string): Promise<string> {
    await first.run(`cp '${plain.directory}/${name}' .`, { timeoutMs: 120_000 });
    await first.sync();
    return `${(await first.freshStore()).directory}/${name}`;
  }

  test(`a film of ${FILM_MIB} MiB, played here and there`, { timeout: 400_000 }, async () => {
    onTestFailed(() => first.printLogs());
    await plain.run(`head -c ${FILM_MIB * 1024 * 1024} /dev/urandom > film`);
    const played = async (file: string) =>
      (await runCommand(['sh', '-euc', PLAY, 'play', file], { timeoutMs: 120_000 })).stdout;

    expect(await played(await elsewhere('film'))).toBe(await played(`${plain.directory}/film`));
  });

  test.skipIf(!hasSharp)(
    `a picture of ${PICTURE_SIDE} × ${PICTURE_SIDE}, zoomed into${hasSharp ? '' : ' (needs: sharp)'}`,
    { timeout: 400_000 },
    async () => {
      onTestFailed(() => first.printLogs());
      const node = async (script: string, file: string) =>
        (await runCommand([process.execPath, '-e', script, file], { timeoutMs: 120_000 })).stdout;
      await node(DRAW, `${plain.directory}/picture.tif`);

      expect(await node(ZOOM, await elsewhere('picture.tif'))).toBe(await node(ZOOM, `${plain.directory}/picture.tif`));
    },
  );
});

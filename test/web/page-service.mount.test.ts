import { mkdirSync, readFileSync } from 'node:fs';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFailed } from 'vitest';
import { unitNameOf } from '../../src/cli/commands/service-unit.ts';
import { SignedInHome } from '../cli/signed-in-home.ts';
import { missingForMounts } from '../harness/mount-fixture.ts';
import { testUnless } from '../harness/requirement.ts';
import { missingBrowser, openPage, PageProgram, startBrowser } from './page-program.ts';
import { StandInManager } from './stand-in-manager.ts';

/** The buttons that mount at each sign-in to this machine, in a real browser, over a stand-in for `systemctl`. */

const missing = missingBrowser() ?? missingForMounts();
const testHere = testUnless(missing);
let browser: Browser;
let signedIn: SignedInHome;
let manager: StandInManager;
let program: PageProgram;
let page: Page;
let troubles: string[];
let directory: string;
let unit: string;

beforeAll(async () => {
  if (missing === null) browser = await startBrowser();
});

afterAll(async () => {
  await browser?.close();
});

beforeEach(async () => {
  if (missing !== null) return;
  signedIn = await SignedInHome.open();
  const { home } = signedIn;
  manager = new StandInManager(home);
  directory = home.path('home/Cloud');
  mkdirSync(directory);
  unit = unitNameOf(directory);
  program = await PageProgram.start({ ...home.env, ...manager.env });
  ({ page, troubles } = await openPage(browser));
  await page.goto(`${program.origin}/`);
  await page.getByLabel('Code').fill(program.code);
  await page.getByRole('button', { name: 'Open the page' }).click();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Accounts' }).click();
});

afterEach(async () => {
  if (missing !== null) return;
  await program?.stop();
  await signedIn?.home.run('cfs', ['umount', '--now']);
  await signedIn?.dispose();
});

const isMounted = (): boolean => readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `);
const click = (name: string): Promise<void> => page.getByRole('button', { name: `${name}: ` }).click();
const says = (text: string | RegExp): Promise<void> => page.getByText(text).first().waitFor();
const INSTALLED = 'It is mounted at each sign-in to this machine.';
const NOT_INSTALLED = 'It is not mounted automatically.';

/** [S-web-3] */
testHere(
  '"Mount now and at each sign-in" installs the unit, which mounts; "Stop that" asks, unmounts and removes it',
  async () => {
    onTestFailed(() => console.error(manager.output));
    await click('Mount now and at each sign-in');
    await says(`mounted at ${directory}, now and at each login to this machine`);
    await says(INSTALLED);
    expect(manager.asked()).toEqual(['--user daemon-reload', `--user enable --now ${unit}`]);
    expect(manager.unit(unit)).toContain(`--account ${signedIn.name} -- ${directory}\n`);
    expect(isMounted()).toBe(true);

    await click('Stop that');
    const dialog = page.getByRole('dialog');
    expect(await dialog.locator('p').textContent()).toContain('Nothing is lost');
    await dialog.getByRole('button').first().click();
    expect(manager.asked()).toEqual([]);
    await click('Stop that');
    await dialog.getByRole('button').last().click();
    await says(/^removed /); // "Not mounted." is there earlier, when the mount ends
    await says('Not mounted.');
    expect(manager.asked()).toEqual([`--user disable --now ${unit}`, '--user daemon-reload']);
    expect(manager.unit(unit)).toBeNull();
    expect(isMounted()).toBe(false);
    expect(troubles).toEqual([]);
  },
);

/** [S-web-3] */
testHere('"Mount at each sign-in" hands a mount over to the unit', async () => {
  onTestFailed(() => console.error(manager.output));
  await click('Mount now');
  await says(NOT_INSTALLED);
  expect(manager.asked()).toEqual([]);
  await click('Mount at each sign-in');
  await says(INSTALLED);
  expect(manager.asked()).toEqual(['--user daemon-reload', `--user enable --now ${unit}`]);
  expect(isMounted()).toBe(true);
  expect(troubles).toEqual([]);
});

/** [S-web-3] */
testHere(
  'where no manager answers, the folder is mounted all the same, and the page says that it will not be at sign-in',
  async () => {
    manager.leave();
    await click('Mount now and at each sign-in');
    await says(/not started \(Failed to connect to bus: No medium found\); to start it: systemctl --user enable --now/);
    await says('Mounted at');
    await says(NOT_INSTALLED);
    expect(isMounted()).toBe(true);
    // The first notice would answer for the second.
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await click('Mount at each sign-in');
    await says(/not started \(Failed to connect to bus/);
    await says(NOT_INSTALLED);
    expect(isMounted()).toBe(true);
    expect(troubles).toEqual([]);
  },
);

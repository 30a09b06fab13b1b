import { readFileSync } from 'node:fs';
import type { Browser, Locator, Page } from 'playwright-core';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { demoPhoto } from '../../src/cli/demo/demo-photo.ts';
import { type CommandHome, CommandHome as Home } from '../cli/cli-harness.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { testUnless } from '../harness/requirement.ts';
import { missingBrowser, openPage, PageProgram, screenshot, startBrowser, until } from './page-program.ts';

/** The page in a real browser, over real mounts and a real server. */

const missing = missingBrowser() ?? missingForMounts();
const testHere = testUnless(missing);
const MARKUP = '<img src=x onerror=alert(1)> & "quoted".txt';
const troubles: string[][] = [];
let browser: Browser;

beforeAll(async () => {
  if (missing === null) browser = await startBrowser();
});

afterAll(async () => {
  await browser?.close();
});

async function signedIn(program: PageProgram, how: Parameters<typeof openPage>[1] = {}): Promise<Page> {
  const watched = await openPage(browser, how);
  troubles.push(watched.troubles);
  await watched.page.goto(`${program.origin}/`);
  await watched.page.getByLabel('Code').fill(program.code);
  await watched.page.getByRole('button', { name: 'Open the page' }).click();
  await watched.page.getByRole('navigation', { name: 'Pages' }).waitFor();
  return watched.page;
}

/** Clicks, and answers the dialog that follows. */
async function clickAndConfirm(page: Page, button: Locator): Promise<string> {
  await button.click();
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  const text = (await dialog.locator('p').textContent()) ?? '';
  await dialog.getByRole('button').last().click();
  return text;
}

async function saved(page: Page, button: Locator): Promise<string> {
  const [download] = await Promise.all([page.waitForEvent('download'), button.click()]);
  return readFileSync(await download.path(), 'utf8');
}

const go = (page: Page, name: string): Promise<void> =>
  page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name }).click();
const isMounted = (directory: string): boolean => readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `);

/** [S-web-3] */
testHere('with the mouse, a person gets from the installed program to a mounted folder and back', async () => {
  const server = await ReferenceServer.start();
  const home: CommandHome = new Home();
  const program = await PageProgram.start(home.env);
  const directory = home.path('home/Cloud');
  try {
    const page = await signedIn(program);
    await screenshot(page, 'accounts-empty');
    await page.getByRole('heading', { name: 'Accounts', level: 1 }).waitFor();
    const { account } = server;
    await page.getByLabel('Address of the service').fill(account.url);
    await page.getByLabel('User name').fill(account.username);
    await page.getByLabel('Password', { exact: true }).fill('a wrong password');
    await page.getByLabel('Application ID').fill(account.application);
    await page.getByLabel('Access key ID').fill(account.accessKeyId);
    await page.getByLabel('Private access key').fill(account.privateAccessKey);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('check them and try again').first().waitFor();
    await page.getByLabel('Password', { exact: true }).fill(account.password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('signed in to').first().waitFor();

    await page.getByRole('button', { name: 'Choose another…' }).click();
    await page.getByLabel('New directory').fill('Elsewhere');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('button', { name: 'Use this directory' }).click();
    await page.getByText(home.path('home/Elsewhere')).first().waitFor();
    await page.getByRole('button', { name: 'Choose another…' }).click();
    await page.getByRole('button', { name: '↑ up' }).click();
    await page.getByRole('button', { name: 'home/' }).waitFor();
    await page.reload();
    await go(page, 'Accounts');
    await page.getByText(directory).first().waitFor();
    await page.getByRole('button', { name: 'Mount now: ' }).click();
    await page.getByText('Mounted at').first().waitFor();
    expect(isMounted(directory)).toBe(true);
    await screenshot(page, 'accounts-mounted');

    await page.getByRole('button', { name: 'Unmount: ' }).click();
    await page.getByText('Not mounted.').first().waitFor();
    expect(isMounted(directory)).toBe(false);
    const loss = await clickAndConfirm(page, page.getByRole('button', { name: 'Sign out and remove copies…' }));
    expect(loss).toContain('Everything is with the service.');
    await page.getByText('There is no account on this machine yet').first().waitFor();
  } finally {
    await home.run('cfs', ['umount', '--now']);
    await program.stop();
    await server.dispose();
    home.dispose();
  }
});

describe('over a mount', () => {
  let mount: MountFixture;
  let program: PageProgram;
  let page: Page;

  beforeAll(async () => {
    if (missing !== null) return;
    mount = await MountFixture.start({ flags: ['--settle', '0s'] });
    await mount.run('mkdir docs && printf "one\\ntwo\\n" > docs/plan.txt && cat > photo.png', { input: demoPhoto() });
    await mount.run('cat > photo.jpg && head -c 3000000 /dev/urandom > large.bin', {
      input: await sharp(demoPhoto()).jpeg().toBuffer(),
    });
    await mount.run('cat > name', { input: 'bytes' });
    await mount.run('mv name "$NAME"', { env: { NAME: MARKUP } });
    await mount.sync();
    program = await PageProgram.start(mount.env());
    page = await signedIn(program);
  });

  afterAll(async () => {
    await program?.stop();
    await mount?.dispose();
  });

  /** [S-web-4] */
  testHere('the overview shows a mount, pauses and resumes it, pushes, and looks for changes', async () => {
    await page.getByText('Everything is uploaded').first().waitFor();
    await page.getByText('online', { exact: true }).first().waitFor();
    await page.getByRole('button', { name: 'Pause: ' }).click();
    await page.getByText('pushing is paused').first().waitFor();
    await mount.run('printf waits > later.txt');
    await page.getByText('1 change waits, 5 B').first().waitFor();
    await page.getByText('What waits').click();
    await page.getByRole('listitem').filter({ hasText: 'later.txt' }).waitFor();
    await page.getByRole('button', { name: 'Push now: ' }).click();
    await page
      .getByText(/pushing is paused.*cfs resume/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: 'Resume: ' }).click();
    await page.getByText('Everything is uploaded').first().waitFor();
    await page.getByRole('button', { name: 'Pause for 2 hours: ' }).click();
    await page
      .getByText(/^paused until/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: 'Resume: ' }).click();
    await page.getByRole('button', { name: 'Push now: ' }).click();
    await page.getByText('pushing', { exact: true }).first().waitFor();
    await page.getByRole('button', { name: 'Look for changes: ' }).click();
    await page.getByText('shows the state of the service').first().waitFor();
    await page
      .getByRole('img', { name: /^Throughput of 10 minutes/ })
      .locator('canvas')
      .waitFor();
    await page.getByRole('button', { name: 'a day' }).click();
    await page.getByRole('img', { name: /^Throughput of a day/ }).waitFor();
  });

  /** [S-web-4] */
  testHere('a transfer under way is shown with its progress', async () => {
    await mount.cfs(['limit', '--up', '200KiB']);
    await mount.run('head -c 3000000 /dev/urandom > film.mkv');
    await page.getByRole('progressbar', { name: 'Progress of film.mkv' }).waitFor();
    await page
      .getByText(/^1 change waits, 2\.9 MiB, .* left$/)
      .first()
      .waitFor();
    await screenshot(page, 'overview-busy');
    await mount.cfs(['limit', '--up', 'off']);
    await page.getByText('Everything is uploaded').first().waitFor();
  });

  /** [S-web-5] */
  testHere('a parked change is retried, saved, and given up after the number of lost bytes is shown', async () => {
    await mount.server.setFaults([{ on: 'PUT', path: '/data', times: 'always', then: { status: 413 } }]);
    await mount.run('printf 12345678 > big.txt && printf 1234 > small.txt');
    await until(async () => (await page.title()) === '(2) Cloud folders');
    await go(page, 'Needs you');
    const card = page.getByRole('region', { name: 'big.txt' });
    await card.getByText('the account has no storage left for it').first().waitFor();
    await card.getByText('Details').click();
    await card.getByText(/413/).first().waitFor();
    expect(await saved(page, card.getByRole('button', { name: 'Save a copy' }))).toBe('12345678');
    await screenshot(page, 'needs-parked');
    const loss = await clickAndConfirm(
      page,
      page.getByRole('region', { name: 'small.txt' }).getByRole('button', { name: 'Give up…' }),
    );
    expect(loss).toContain('4 B that exist only here are lost');
    await until(async () => (await page.title()) === '(1) Cloud folders');
    await mount.server.setFaults([]);
    await card.getByRole('button', { name: 'Try again' }).click();
    await page.getByText('Nothing needs you.').first().waitFor();
    expect((await mount.run('ls')).stdout).not.toContain('small.txt');
    await mount.sync();
  });

  /** [S-web-5] */
  testHere(
    'a conflict is compared side by side, labelled by machine and time, and ends with the chosen side',
    async () => {
      for (const [name, original, copy] of [
        ['one', 'a\nold\nz\n', 'a\nnew\nz\n'],
        ['two', 'x', 'y'],
        ['three', 'x', 'y'],
      ] as const)
        await mount.run(
          `printf '${original}' > ${name}.txt && printf '${copy}' > '${name} (conflicted copy 2026-11-20 desk).txt'`,
        );
      await mount.sync();
      await page.reload();
      await go(page, 'Needs you');
      const card = page.getByRole('region', { name: /^one/ });
      await card.getByRole('heading', { name: 'copy made by desk on 2026-11-20' }).waitFor();
      await card.getByRole('heading', { name: 'the file itself' }).waitFor();
      await card.getByRole('button', { name: 'Compare' }).click();
      const diff = card.getByLabel('Differences');
      expect(await diff.locator('del').textContent()).toBe('- old\n');
      expect(await diff.locator('ins').textContent()).toBe('+ new\n');
      await screenshot(page, 'needs-conflict');
      await card.getByRole('button', { name: /^Keep this: .*copy made by desk/ }).click();
      await page.getByText('the copy is kept as one.txt').first().waitFor();
      await page
        .getByRole('region', { name: /^two/ })
        .getByRole('button', { name: /^Keep this: .*the file itself/ })
        .click();
      await page.getByText('two.txt is kept, the copy is deleted').first().waitFor();
      await page
        .getByRole('region', { name: /^three/ })
        .getByRole('button', { name: 'Keep both' })
        .click();
      await page.getByText('Nothing needs you.').first().waitFor();
      expect((await mount.run('cat one.txt two.txt')).stdout).toBe('a\nnew\nz\nx');
      expect((await mount.run('ls')).stdout).toContain('three (desk 2026-11-20).txt');
      await mount.sync();
    },
  );

  const row = (name: string): Locator =>
    page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });

  /** [S-web-6] */
  testHere('files are shown a folder at a time, with their states, pinned, and removed from this machine', async () => {
    await go(page, 'Files');
    await page.getByRole('main').getByRole('link').first().click();
    await row('docs/').waitFor();
    await row('large.bin').getByText('here', { exact: true }).first().waitFor();
    // A version that was just acknowledged is merged first.
    await until(async () => {
      if ((await row('large.bin').getByText('on the service').count()) > 0) return true;
      await row('large.bin')
        .getByRole('button', { name: 'Free space' })
        .click({ timeout: 1_000 })
        .catch(() => {});
      return false;
    });
    await row('large.bin').getByRole('button', { name: 'Pin' }).click();
    await row('large.bin').getByRole('button', { name: 'Unpin' }).waitFor();
    await page.getByRole('button', { name: 'Read again' }).click();
    await row('large.bin').getByText('here · pinned').first().waitFor();
    await screenshot(page, 'files');
    await row('large.bin').getByRole('button', { name: 'Unpin' }).click();
    await row('large.bin').getByRole('button', { name: 'Pin', exact: false }).waitFor();
    await row('docs/').getByRole('link').click();
    await row('plan.txt').waitFor();
    await page.getByRole('navigation', { name: 'Folder' }).getByRole('link').first().click();
    await row('docs/').waitFor();
  });

  /** [S-web-7] */
  testHere('names with markup are shown as text', async () => {
    await row(MARKUP).getByRole('link').click();
    await page.getByText(MARKUP).first().waitFor();
    expect(await page.locator('img[src="x"]').count()).toBe(0);
    await go(page, 'Activity');
    await page.getByText(MARKUP).first().waitFor();
    expect(await page.locator('img[src="x"]').count()).toBe(0);
  });

  /** [S-web-6] */
  testHere('a timeline compares, saves and restores versions, and makes and removes a link', async () => {
    await mount.run('printf "one\nTWO\n" > docs/plan.txt');
    await mount.sync();
    await go(page, 'Files');
    await page.getByRole('main').getByRole('link').first().click();
    await row('docs/').getByRole('link').click();
    await row('plan.txt').getByRole('link').click();
    const versions = page.getByRole('list', { name: 'Versions, newest first' }).getByRole('listitem');
    await until(async () => (await versions.count()) === 2);
    await versions.first().getByRole('button', { name: 'Compare' }).click();
    expect(await versions.first().getByLabel('Differences').locator('del').textContent()).toBe('- two\n');
    expect(await saved(page, versions.last().getByRole('button', { name: 'Save as…' }))).toBe('one\ntwo\n');
    expect(await saved(page, page.getByRole('button', { name: 'Save as…: docs/plan.txt' }))).toBe('one\nTWO\n');
    await screenshot(page, 'timeline');
    await clickAndConfirm(page, versions.last().getByRole('button', { name: 'Restore…' }));
    await page.getByText('as its next version').first().waitFor();
    expect((await mount.run('cat docs/plan.txt')).stdout).toBe('one\ntwo\n');
    await page.getByRole('button', { name: 'Create a link' }).click();
    const link = page.getByRole('main').getByRole('link', { name: /^http/ });
    expect(await (await fetch(`${await link.getAttribute('href')}?directDownload=true`)).text()).toContain('one');
    await page.getByRole('button', { name: 'Remove the link' }).click();
    await page.getByText('No public link.').first().waitFor();
    for (const name of ['Free space', 'Pin', 'Unpin'] as const) {
      await page.getByRole('button', { name: `${name}: docs/plan.txt`, exact: true }).click();
      await page
        .getByText({ 'Free space': /local copy|in use/, Pin: /pinned|kept on/, Unpin: 'is no longer pinned' }[name])
        .first()
        .waitFor();
    }
    await mount.sync();
  });

  /** [S-web-6] */
  testHere('a picture is shown in the scaled form of the service', async () => {
    await go(page, 'Files');
    await page.getByRole('main').getByRole('link').first().click();
    await row('photo.jpg').getByRole('link').click();
    const picture = page.getByRole('img', { name: /^Version of/ });
    await picture.waitFor();
    const width = (image: unknown): number => (image as { naturalWidth: number }).naturalWidth;
    await until(async () => (await picture.evaluate(width)) === 480);
    await screenshot(page, 'timeline-picture');
    await page.goBack();
    await row('photo.png').getByRole('link').click();
    await until(async () => (await picture.evaluate(width)) === 640);
  });

  /** [S-web-6] */
  testHere('the trash restores an item, and is emptied after a question with its size', async () => {
    await mount.run('rm later.txt two.txt');
    await mount.sync();
    await go(page, 'Files');
    await page.getByRole('main').getByRole('link').first().click();
    await page.getByRole('link', { name: 'Trash' }).click();
    const item = page.getByRole('row').filter({ hasText: 'later.txt' });
    await item.getByRole('button', { name: 'Restore' }).click();
    await page.getByText('later.txt is back in').first().waitFor();
    await until(async () => (await item.count()) === 0);
    expect((await mount.run('cat later.txt')).stdout).toBe('waits');
    const question = await clickAndConfirm(page, page.getByRole('button', { name: 'Empty the trash…' }));
    expect(question).toMatch(/^\d+ items, .* are deleted permanently/);
    await page.getByText('The trash is empty.').first().waitFor();
  });

  /** [S-web-4] */
  testHere('the activity is filtered by a text, and to what needs attention', async () => {
    await go(page, 'Activity');
    const events = page.getByRole('list', { name: 'Events, newest first' }).getByRole('listitem');
    await events.filter({ hasText: 'pushing is paused' }).first().waitFor();
    await page.getByLabel('Filter').fill('BIG.txt');
    await until(async () => (await events.filter({ hasText: 'photo.png' }).count()) === 0);
    await events.filter({ hasText: 'parked big.txt' }).first().waitFor();
    await page.getByLabel('only what needs attention').check();
    await until(async () => (await events.filter({ hasText: 'uploaded' }).count()) === 0);
    await page.getByLabel('Filter').fill('');
    await page.getByLabel('only what needs attention').uncheck();
    await screenshot(page, 'activity');
  });

  /** [S-web-4] */
  testHere('keys switch pages, and every control has a name', async () => {
    await page.keyboard.press('Tab');
    for (const [key, heading] of [
      ['1', 'Overview'],
      ['2', 'Needs you'],
      ['3', 'Files'],
      ['4', 'Activity'],
      ['5', 'Accounts'],
    ] as const) {
      await page.getByRole('main').press(key);
      await page.getByRole('heading', { name: heading, level: 1 }).waitFor();
      const nameless = await page.locator('button, a, input, meter, progress').evaluateAll(
        (elements) =>
          (
            elements as unknown as {
              textContent: string;
              labels?: { length: number };
              getAttribute(name: string): string | null;
            }[]
          ).filter(
            (element) => !element.textContent.trim() && !element.getAttribute('aria-label') && !element.labels?.length,
          ).length,
      );
      expect(nameless, heading).toBe(0);
    }
  });

  /** [S-web-4] */
  testHere('each page fits a desk and a phone, light and dark', async () => {
    await until(async () => (await page.locator('.notice.done').count()) === 0);
    for (const width of [1100, 390] as const)
      for (const scheme of ['light', 'dark'] as const) {
        await page.setViewportSize({ width, height: 800 });
        await page.emulateMedia({ colorScheme: scheme });
        for (const name of ['Overview', 'Needs you', 'Files', 'Activity', 'Accounts'] as const) {
          await go(page, name);
          await page.getByRole('heading', { name, level: 1 }).waitFor();
          if (name === 'Files') {
            await page.getByRole('main').getByRole('link').first().click();
            await row('docs/').waitFor();
          }
          const beyond = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
          expect(beyond, `${name} at ${width}`).toBeLessThanOrEqual(0);
          await screenshot(page, `${name.toLowerCase().replace(' ', '-')}-${width}-${scheme}`);
        }
      }
    await page.setViewportSize({ width: 1100, height: 800 });
  });

  /** [S-web-8] */
  testHere(
    'a service that is away, and a mount that dies, are shown; a new mount appears without a click',
    async () => {
      await go(page, 'Overview');
      await mount.server.kill9();
      await mount.run('printf more > offline.txt');
      await page
        .getByText(/^offline: /)
        .first()
        .waitFor({ timeout: 60_000 });
      await page.getByText('1 change waits').first().waitFor();
      await mount.server.restart();
      await page.getByText('online', { exact: true }).first().waitFor({ timeout: 60_000 });
      await mount.kill9();
      await page.getByText('not mounted', { exact: true }).first().waitFor();
      await mount.cfs(['umount', mount.directory]);
      await mount.mount();
      await page.getByText('online', { exact: true }).first().waitFor();
    },
  );

  /** [S-web-1] */
  testHere('the end of the page is shown, and no mount notices it', async () => {
    const { pid } = mount;
    program.child.kill('SIGKILL');
    await page.getByRole('alert').getByText('Mounts are not affected').first().waitFor();
    expect((await mount.run('ls')).stdout).toContain('docs');
    expect(mount.pid).toBe(pid);
  });
});

/** [S-web-2] */
testHere('the policy blocked nothing that the page needs, and no script failed', () => {
  expect(troubles.length).toBeGreaterThan(1);
  expect(troubles.flat()).toEqual([]);
});

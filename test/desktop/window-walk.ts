import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { DesktopScreen, missingForNautilus } from '../harness/desktop-screen.ts';
import { type MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms, missingRoot } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';
import { missingForPings } from './main-loop-pings.ts';
import { missingForExtension } from './nautilus-driver.ts';

/** The folder of the mount, whose files have numbers as names. */
export const WALKED = 'many';
const MS_OF_ROUND_MAX = 120_000;

/** What the measured walk in a window of Nautilus, with the extension, needs and this machine lacks. */
export function missingForWalks(): string | null {
  return (
    missingForMounts() ??
    missingForNautilus() ??
    missingForExtension() ??
    missingForPings() ??
    missingRoot() ??
    missingPrograms('unshare')
  );
}

/** Fills the folder of the mount, and starts a screen where the extension finds that mount, and its icons. */
export async function screenForWalks(mount: MountFixture, files: number, timeoutMs: number): Promise<DesktopScreen> {
  await mount.run(`mkdir ${WALKED}; cd ${WALKED}; for n in $(seq ${files}); do echo $n > "$n.txt"; done`, {
    timeoutMs,
  });
  await mount.sync();
  const screen = await DesktopScreen.start();
  symlinkSync(join(mount.env().XDG_RUNTIME_DIR as string, 'cfs'), join(screen.home, 'run/cfs'));
  const icons = join(screen.home, 'data/icons/hicolor/scalable/emblems');
  mkdirSync(icons, { recursive: true });
  cpSync(join(PROJECT, 'desktop/icons'), icons, { recursive: true });
  return screen;
}

/** What a person does in the window of that folder: searches for each of these numbers, goes to the folder above, and back. */
export async function walkInWindow(screen: DesktopScreen, rounds: number, first = 1): Promise<void> {
  await screen.press(WALKED, 'F5');
  const script = [
    'folder=$1; id=$(xdotool search --onlyvisible --name "^$folder$" | tail -1); title() { xdotool getwindowname "$id"; }',
    'waits() { for _ in $(seq "$2"); do case "$(title)" in "$1"*) return 0;; esac; sleep 0.1; done; return 1; }',
    // The window takes the keys only when it is ready.
    'searches() { for _ in $(seq 20); do xdotool windowactivate --sync "$id" key ctrl+f; xdotool type "$1"; waits "Search for" 50 && return; ends; done; false; }',
    'ends() { for _ in $(seq 100); do [ "$(title)" = "$folder" ] && return; xdotool key Escape; sleep 0.3; done; false; }',
    'for n in $(seq $3 $2); do searches "$n" && ends && xdotool key alt+Up && waits mnt 600 && xdotool key alt+Left && waits "$folder" 600 ||',
    '{ echo "round $n ends at $(title)"; exit 1; }; done',
  ];
  const argv = ['sh', '-c', script.join('\n'), 'sh', WALKED, String(first + rounds - 1), String(first)];
  const { code, stdout } = await screen.run(argv, rounds * MS_OF_ROUND_MAX);
  expect([code, stdout]).toEqual([0, '']);
}

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** One mount. Reading the table never accesses a file system, so it cannot hang on a dead one. */
export interface MountEntry {
  readonly directory: string;
  readonly type: string;
  readonly source: string;
  /** major:minor of the device, as in /sys/class/bdi. On macOS, whose table has no devices, the source. */
  readonly device: string;
}

/** All mounts visible to this process; of several on one directory the topmost is last. */
export function readMountTable(): MountEntry[] {
  return process.platform === 'darwin'
    ? parseMountOutput(spawnSync('/sbin/mount', { encoding: 'utf8' }).stdout ?? '')
    : parseMountInfo(readFileSync('/proc/self/mountinfo', 'utf8'));
}

/** The lines of mount(8) on macOS: `SOURCE on DIRECTORY (TYPE, FLAG, …)`. */
export function parseMountOutput(text: string): MountEntry[] {
  const lines = [...text.matchAll(/^(.*?) on (\/.*) \(([^,()]+)[^()]*\)$/gm)];
  return lines.map(([, source = '', directory = '', type = '']) => ({ directory, type, source, device: source }));
}

/** The lines of /proc/self/mountinfo (proc(5)). */
export function parseMountInfo(text: string): MountEntry[] {
  const entries: MountEntry[] = [];
  for (const line of text.split('\n')) {
    const [before, after] = line.split(' - ');
    const fields = before?.split(' ') ?? [];
    const [type, source] = after?.split(' ') ?? [];
    const [device, directory] = [fields[2], fields[4]];
    if (type === undefined || source === undefined || device === undefined || directory === undefined) continue;
    entries.push({ directory: unescaped(directory), type, source: unescaped(source), device });
  }
  return entries;
}

/** The topmost mount on `directory`; null without one. */
export function mountOn(directory: string, table: readonly MountEntry[] = readMountTable()): MountEntry | null {
  return table.findLast((entry) => entry.directory === directory) ?? null;
}

/**
 * The directory where the mount with this device can be unmounted: its original mount point, or its current one. Null if it was detached,
 * or if another mount covers it: umount(2) would take that one.
 */
export function placeOf(device: string, directory: string): string | null {
  const table = readMountTable();
  const isOnTop = (place: string): boolean => mountOn(place, table)?.device === device;
  if (isOnTop(directory)) return directory;
  return table.find((entry) => entry.device === device && isOnTop(entry.directory))?.directory ?? null;
}

/** Decodes blanks and other characters that are written as three octal digits, byte by byte. */
function unescaped(text: string): string {
  const bytes = Buffer.from(text);
  if (!bytes.includes(0x5c)) return text;
  return Buffer.from(
    bytes
      .toString('latin1')
      .replace(/\\([0-7]{3})/g, (_all, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))),
    'latin1',
  ).toString('utf8');
}

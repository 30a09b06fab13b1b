/** `report (conflicted copy 2026-11-20 host).pdf`; further copies have a number. */
export function conflictName(
  name: string,
  {
    nowMs,
    host,
    isTaken,
  }: { readonly nowMs: number; readonly host: string; readonly isTaken: (name: string) => boolean },
): string {
  const dot = name.lastIndexOf('.');
  const cut = dot <= 0 || name.length - dot > EXTENSION_CHARACTERS_MAX ? name.length : dot;
  const day = new Date(nowMs).toISOString().slice(0, 10);
  const extension = name.slice(cut);
  for (let number = 1; ; number++) {
    const mark = ` (conflicted copy ${day} ${host}${number === 1 ? '' : ` ${number}`})`;
    const stem = fitting(name.slice(0, cut), NAME_BYTES_MAX - Buffer.byteLength(mark + extension));
    const candidate = `${stem}${mark}${extension}`;
    if (!isTaken(candidate)) return candidate;
  }
}

/** NAME_MAX of Linux. */
const NAME_BYTES_MAX = 255;
const EXTENSION_CHARACTERS_MAX = 16;

/** The longest prefix of `text` with at most `bytesMax` bytes, cut between characters. */
function fitting(text: string, bytesMax: number): string {
  let bytes = 0;
  let fits = '';
  for (const character of text) {
    bytes += Buffer.byteLength(character);
    if (bytes > bytesMax) break;
    fits += character;
  }
  return fits;
}

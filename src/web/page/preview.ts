import { useEffect, useState } from 'preact/hooks';
import { html, type View } from './html.ts';
import { diffedLines } from './line-diff.ts';

/** Bytes of a file that are compared as text. */
export const TEXT_BYTES_MAX = 1024 ** 2;
export const PICTURE_BYTES_MAX = 32 * 1024 ** 2;
const LINES_SHOWN_MAX = 2_000;

/** The only types that the page shows; everything else is saved. */
const PICTURES: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
};

export function pictureTypeOf(path: string): string | null {
  return PICTURES[path.slice(path.lastIndexOf('.') + 1).toLowerCase()] ?? null;
}

/** The text of a file; null if it is not text in UTF-8. */
export async function textOf(blob: Blob): Promise<string | null> {
  if (blob.size > TEXT_BYTES_MAX) return null;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await blob.arrayBuffer());
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

/** A picture of a listed type, from bytes that `read` gets. */
export function Picture(props: {
  readonly alt: string;
  readonly type: string;
  readonly read: () => Promise<Blob>;
}): View {
  const [address, setAddress] = useState<string | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  useEffect(() => {
    let made: string | null = null;
    let isGone = false;
    props.read().then(
      (blob) => {
        if (isGone) return;
        made = URL.createObjectURL(new Blob([blob], { type: props.type }));
        setAddress(made);
      },
      (error: Error) => setTrouble(error.message),
    );
    return () => {
      isGone = true;
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, []);
  if (trouble !== null) return html`<span class="quiet">no preview: ${trouble}</span>`;
  return address === null
    ? html`<span class="quiet">loading…</span>`
    : html`<img class="preview" src=${address} alt=${props.alt} />`;
}

interface DiffProps {
  readonly before: string;
  readonly after: string;
  readonly beforeLabel: string;
  readonly afterLabel: string;
}

/** Two texts, line by line: lines of one side only are coloured and marked. */
export function TextDiff({ before, after, beforeLabel, afterLabel }: DiffProps): View {
  if (before === after) return html`<p class="quiet">Both have the same text.</p>`;
  const lines = diffedLines(before, after);
  const shown = lines.slice(0, LINES_SHOWN_MAX);
  return html`<div class="diff"><p><del>− ${beforeLabel}</del><br /><ins>+ ${afterLabel}</ins></p><pre tabindex="0" aria-label="Differences">${shown.map(
    ({ mark, text }, index) => {
      const line = `${mark} ${text}\n`;
      if (mark === '-') return html`<del key=${index}>${line}</del>`;
      return mark === '+' ? html`<ins key=${index}>${line}</ins>` : html`<span key=${index}>${line}</span>`;
    },
  )}</pre>${lines.length > shown.length ? html`<p class="quiet">and ${lines.length - shown.length} more lines</p>` : null}</div>`;
}

import { useEffect, useState } from 'preact/hooks';
import { localTime } from '../../base/local-time.ts';
import { formatBytes } from '../../config/units.ts';
import type { TrashEntry } from '../page-call.ts';
import { call } from './connection.ts';
import { ActionButton, act, address, DangerButton, shownName } from './controls.ts';
import { html, type View } from './html.ts';

const SHOWN_MAX = 500;

export function TrashPage({ account }: { readonly account: string }): View {
  const [items, setItems] = useState<readonly TrashEntry[] | null>(null);
  const load = (): Promise<boolean> =>
    act(async () => {
      setItems((await call('trash', { account })).items);
      return null;
    });
  useEffect(() => void load(), [account]);
  const then = (run: () => ReturnType<typeof call<'trashRestore'>>) => async () => {
    const said = await run();
    await load();
    return said;
  };
  if (items === null) return html`<h1>Trash</h1><p class="quiet">Reading the trash…</p>`;
  const bytes = items.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0);
  const question = async (): Promise<string> =>
    `${items.length} items, ${formatBytes(bytes)} without the contents of folders, are deleted permanently, on all machines.`;
  return html`<h1>Trash</h1><p><a href=${address('files', account, '')}>Files</a></p>
    ${
      items.length === 0
        ? html`<p class="quiet">The trash is empty.</p>`
        : html`<table class="files"><caption class="hidden">Trash</caption>
      <thead><tr><th scope="col">Name</th><th scope="col" class="number">Size</th><th scope="col">Saved</th><th scope="col">Restore</th></tr></thead>
      <tbody>${items.slice(0, SHOWN_MAX).map(
        ({ id, name, kind, sizeBytes, savedMs }) => html`<tr key=${id}>
        <th scope="row" class="name">${shownName(name)}${kind === 'folder' ? '/' : ''}</th>
        <td class="number">${sizeBytes === null ? '' : formatBytes(sizeBytes)}</td>
        <td class="quiet">${savedMs === null ? '' : localTime(savedMs).slice(0, 16)}</td>
        <td class="actions"><${ActionButton} label="Restore" title=${name} run=${then(() => call('trashRestore', { account, item: id }))} /></td></tr>`,
      )}</tbody></table>
      ${items.length > SHOWN_MAX ? html`<p>and ${items.length - SHOWN_MAX} more</p>` : null}
      <p><${DangerButton} label="Empty the trash…" question=${question} run=${then(() => call('trashEmpty', { account }))} /></p>`
    }`;
}

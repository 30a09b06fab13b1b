import { useEffect, useState } from 'preact/hooks';
import { localTime } from '../../base/local-time.ts';
import { formatBytes } from '../../config/units.ts';
import type { FolderEntry } from '../../control/status-model.ts';
import type { FolderView } from '../page-call.ts';
import { call } from './connection.ts';
import { ActionButton, act, address, shownName } from './controls.ts';
import { html, type View } from './html.ts';
import type { Model } from './model.ts';

/** The files page without an account in its address: the only mounted one, or a choice. */
export function FilesStart({ model, page }: { readonly model: Model; readonly page: string }): View {
  const mounted = model.accounts.filter(({ status }) => status !== null);
  return html`<h1>Files</h1>${mounted.length === 0 ? html`<p>Nothing is mounted. <a href="#/accounts">Mount an account</a></p>` : null}
    <ul class="paths">${mounted.map(({ name, username }) => html`<li key=${name}><a href=${address(page, name, '')}>${shownName(username)}</a></li>`)}</ul>`;
}

/** One folder at a time. */
export function FilesPage({ account, path }: { readonly account: string; readonly path: string }): View {
  const [view, setView] = useState<FolderView | null>(null);
  const load = (after: string | null): Promise<boolean> =>
    act(async () => {
      const page = await call('folder', { account, path, after });
      setView((before) =>
        after === null || before === null ? page : { ...page, entries: [...before.entries, ...page.entries] },
      );
      return null;
    });
  useEffect(() => {
    setView(null);
    void load(null);
  }, [account, path]);
  const then = (run: () => Promise<unknown>) => async () => {
    const said = (await run()) as never;
    await load(null);
    return said;
  };
  const readAgain = async (): Promise<null> => {
    await load(null);
    return null;
  };
  return html`<h1>Files</h1>
    <${Crumbs} account=${account} path=${path} />
    <p class="buttons"><${ActionButton} label="Read again" run=${readAgain} /><a class="button" href=${address('trash', account, '')}>Trash</a></p>
    ${
      view === null
        ? html`<p class="quiet">Reading the folder…</p>`
        : html`<table class="files"><caption class="hidden">${shownName(path)}</caption>
      <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col" class="number">Size</th><th scope="col">Changed</th><th scope="col">Keep</th></tr></thead>
      <tbody>${view.entries.map((entry) => html`<${Row} key=${entry.name} account=${account} folder=${path} entry=${entry} then=${then} />`)}</tbody></table>
      ${view.entries.length === 0 ? html`<p class="quiet">This folder is empty.</p>` : null}
      ${view.next === null ? null : html`<p><button type="button" onClick=${() => load(view.next)}>Show more</button></p>`}`
    }`;
}

export function Crumbs({ account, path }: { readonly account: string; readonly path: string }): View {
  const names = path.split('/').filter((name) => name !== '');
  const parts = names.map((name, index) => ({ name, at: names.slice(0, index + 1).join('/') }));
  return html`<nav class="crumbs" aria-label="Folder"><a href=${address('files', account, '')}>${shownName('')}</a>${parts.map(
    ({ name, at }, index) =>
      html`<span key=${at}> / ${index === parts.length - 1 ? html`<span aria-current="page">${shownName(name)}</span>` : html`<a href=${address('files', account, at)}>${shownName(name)}</a>`}</span>`,
  )}</nav>`;
}

function Row(props: {
  readonly account: string;
  readonly folder: string;
  readonly entry: FolderEntry;
  readonly then: (run: () => Promise<unknown>) => () => Promise<never>;
}): View {
  const { account, folder, entry, then } = props;
  const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
  const isFolder = entry.kind === 'folder';
  const isPinned = entry.pinned === 'itself';
  return html`<tr>
    <th scope="row" class="name"><a href=${address(isFolder ? 'files' : 'file', account, path)}>${shownName(entry.name)}${isFolder ? '/' : ''}</a></th>
    <td><${StateText} entry=${entry} /></td>
    <td class="number">${isFolder ? '' : formatBytes(entry.sizeBytes)}</td>
    <td class="quiet">${localTime(entry.modifiedMs).slice(0, 16)}</td>
    <td class="actions">
      <${ActionButton} label=${isPinned ? 'Unpin' : 'Pin'} title=${path} isDisabled=${entry.pinned === 'folder'} run=${then(() => call(isPinned ? 'unpin' : 'pin', { account, path }))} />
      <${ActionButton} label="Free space" title=${path} isDisabled=${entry.here === 'none' || entry.pinned !== 'none'} run=${then(() => call('evict', { account, path }))} />
    </td></tr>`;
}

const HERE = { all: 'here', part: 'partly here', none: 'on the service' } as const;

export function StateText({ entry }: { readonly entry: FolderEntry }): View {
  const { state, here, pinned } = entry;
  const [word = '', reason = ''] = state.split(':');
  const shown =
    {
      clean: here === null ? '' : HERE[here],
      local: 'only here, by its name',
      pending: 'waits',
      pushing: 'is uploaded now',
      parked: `needs you (${reason})`,
    }[word] ?? word;
  const bad = word === 'parked' ? 'bad-text' : word === 'clean' ? 'quiet' : '';
  return html`<span class=${bad}>${shown}${pinned === 'none' ? '' : pinned === 'itself' ? ' · pinned' : ' · pinned with its folder'}</span>`;
}

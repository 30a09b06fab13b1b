import { useEffect, useState } from 'preact/hooks';
import type { Directories } from '../page-call.ts';
import { call } from './connection.ts';
import { ActionButton, act, shownName } from './controls.ts';
import { html, type View } from './html.ts';

/** Chooses an empty directory of this machine as the mount point. */
export function DirectoryChooser(props: { readonly start: string; readonly choose: (path: string) => void }): View {
  const [at, setAt] = useState<Directories | null>(null);
  const [name, setName] = useState('');
  const go = (path: string): Promise<boolean> =>
    act(async () => {
      setAt(await call('directories', { path }));
      return null;
    });
  useEffect(() => void go(props.start), []);
  if (at === null) return html`<p class="quiet">Reading directories…</p>`;
  const below = (each: string): string => `${at.path === '/' ? '' : at.path}/${each}`;
  const make = async (): Promise<null> => {
    await call('makeDirectory', { path: below(name) });
    setName('');
    await go(below(name));
    return null;
  };
  return html`<div class="chooser" role="group" aria-label="Choose a directory">
    <p><strong>${shownName(at.path)}</strong> ${at.isEmpty ? '' : html`<span class="quiet">not empty: choose or create one in it</span>`}</p>
    <ul class="paths">
      ${at.parent === null ? null : html`<li><button type="button" class="link" onClick=${() => go(at.parent as string)}>↑ up</button></li>`}
      ${at.names.map((each) => html`<li key=${each}><button type="button" class="link" onClick=${() => go(below(each))}>${shownName(each)}/</button></li>`)}
    </ul>
    <div class="buttons"><label class="inline">New directory <input value=${name} onInput=${(event: Event) => setName((event.target as HTMLInputElement).value)} /></label>
      <${ActionButton} label="Create" isDisabled=${name === '' || name.includes('/')} run=${make} />
      <button type="button" class="main" disabled=${!at.isEmpty} onClick=${() => props.choose(at.path)}>Use this directory</button></div>
  </div>`;
}

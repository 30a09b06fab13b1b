import { useEffect, useState } from 'preact/hooks';
import { localTime } from '../../base/local-time.ts';
import { formatBytes } from '../../config/units.ts';
import {
  type Conflict,
  type ConflictSide,
  HELD_NODES_MAX,
  type HeldRemoval,
  type ParkedChange,
} from '../../control/status-model.ts';
import type { LiveAccount } from '../live-model.ts';
import { bytes, call } from './connection.ts';
import { ActionButton, act, DangerButton, nameOf, saveAs, shownName } from './controls.ts';
import { html, type View } from './html.ts';
import { getModel, type Model, needsOf, update } from './model.ts';
import { PICTURE_BYTES_MAX, Picture, pictureTypeOf, TEXT_BYTES_MAX, TextDiff, textOf } from './preview.ts';

const SHOWN_MAX = 100;

/** What to do about a parked change, by the first word of its reason. */
const REMEDIES: Readonly<Record<string, string>> = {
  quota: 'Delete something in the account, or get more storage; then try again.',
  forbidden: 'Ask the owner of the folder for permission, or move the file elsewhere.',
  'name-refused': 'Rename the file.',
  'not-found': 'Move the file into a folder that exists.',
  conflict: 'Rename the file, or remove the other item on the service.',
  'base-lost': 'Save the file anew in its program, or give the change up.',
  'local-damage': 'Save a copy and check it; the disk may be failing.',
  refused: 'Try again later; the details say what the service answered.',
};

/** The conflicts of an account: found by a look at the whole store, so only when one may have appeared. */
export async function loadConflicts(account: string): Promise<void> {
  const found = await call('conflicts', { account }).catch(() => null);
  if (found !== null) update({ conflicts: { ...getModel().conflicts, [account]: found } });
}

export function NeedsPage({ model }: { readonly model: Model }): View {
  const names = model.accounts.filter(({ status }) => status !== null).map(({ name }) => name);
  useEffect(() => {
    for (const name of names) void loadConflicts(name);
  }, []);
  const count = needsOf(model);
  return html`<h1>Needs you</h1>
    ${count === 0 ? html`<p class="line"><strong>Nothing needs you.</strong></p>` : null}
    ${model.accounts.map((account) => {
      const { name, status } = account;
      if (status === null) return null;
      const found = model.conflicts[name]?.conflicts ?? [];
      const parked = status.parked.slice(0, SHOWN_MAX);
      return html`<div key=${name}>
        ${
          status.connection.state === 'sign-in-needed'
            ? html`<section class="card"><h2>${shownName(account.username)}: sign in again</h2>
          <p>The service refuses the saved sign-in. Changes are kept until then.</p><p><a href="#/accounts">Sign in</a></p></section>`
            : null
        }
        ${status.held.map((held) => html`<${HeldCard} key=${held.path} account=${account} held=${held} />`)}
        ${found.slice(0, SHOWN_MAX).map((conflict) => html`<${ConflictCard} key=${conflict.copy.path} account=${account} conflict=${conflict} />`)}
        ${parked.map((change) => html`<${ParkedCard} key=${`${change.kind} ${change.path}`} account=${account} change=${change} />`)}
        ${status.parked.length > parked.length ? html`<p>and ${status.parked.length - parked.length} more parked changes</p>` : null}
        ${status.parked.length > 1 ? html`<p><${ActionButton} label="Try all again" title=${account.username} run=${() => call('retry', { account: name, path: null })} /></p>` : null}
      </div>`;
    })}`;
}

function HeldCard({ account, held }: { readonly account: LiveAccount; readonly held: HeldRemoval }): View {
  const count = held.nodes >= HELD_NODES_MAX ? 'More than 100' : String(held.nodes);
  return html`<section class="card" aria-label=${`Removals in ${held.path}`}>
    <h2>${count} removals in ${shownName(held.path)}</h2>
    <p>The service no longer lists them. They are kept here until you confirm that they were removed on purpose.</p>
    <div class="buttons"><${DangerButton} label="Remove them here too…" title=${account.username}
      question=${async () => `${count} files and folders in ${shownName(held.path)} are removed from this machine, and every other removal that is held back.`}
      run=${() => call('refresh', { account: account.name, accept: true })} /></div></section>`;
}

function ParkedCard({ account, change }: { readonly account: LiveAccount; readonly change: ParkedChange }): View {
  const { path, kind, reason, sinceMs } = change;
  const { name } = account;
  const [, word = '', meaning = reason, detail = ''] = /^([\w-]+): (.*?) \((.*)\)$/s.exec(reason) ?? [];
  const loss = async (): Promise<string> => {
    const given = await call('discardLoss', { account: name, path });
    const lost = given.reduce((sum, each) => sum + each.lostBytes, 0);
    return `${given.length === 1 ? 'One change is' : `${given.length} changes are`} given up: ${shownName(path)} returns to the state of the service. ${formatBytes(lost)} that exist only here are lost.`;
  };
  const save = async (): Promise<null> => {
    saveAs(nameOf(path), await bytes('content', { account: name, path }));
    return null;
  };
  return html`<section class="card" aria-label=${path}>
    <h2 class="name">${shownName(path)}</h2>
    <p>Not pushed (${kind.replace('-', ' ')}), since ${localTime(sinceMs)}: <strong>${meaning}</strong>.</p>
    <p>${REMEDIES[word] ?? ''}</p>
    ${detail === '' ? null : html`<details><summary>Details</summary><p class="quiet said">${detail}</p></details>`}
    <div class="buttons">
      <${ActionButton} label="Try again" title=${path} kind="main" run=${() => call('retry', { account: name, path })} />
      ${kind === 'upload' ? html`<${ActionButton} label="Save a copy" title=${path} run=${save} />` : null}
      <${DangerButton} label="Give up…" title=${path} question=${loss} run=${() => call('discard', { account: name, path })} />
    </div></section>`;
}

/** Which machine a side is of: a position alone does not identify a side. */
export function sideLabel({ mine, host, day }: Conflict, side: 'original' | 'copy'): string {
  if (mine === null) return side === 'copy' ? `copy made by ${host} on ${day}` : 'the file itself';
  return mine === side ? 'saved on this machine' : 'saved elsewhere';
}

function ConflictCard({ account, conflict }: { readonly account: LiveAccount; readonly conflict: Conflict }): View {
  const { copy, original } = conflict;
  const keep = (side: string) => async () => {
    const said = await call('keep', { account: account.name, path: copy.path, side });
    await loadConflicts(account.name);
    return said;
  };
  const column = (side: 'original' | 'copy', file: ConflictSide): View => html`<div class="side">
      <h3>${sideLabel(conflict, side)}</h3>
      <p class="quiet">${localTime(file.modifiedMs)}, ${formatBytes(file.sizeBytes)}</p>
      <p class="name">${shownName(nameOf(file.path))}</p>
      <${SidePicture} account=${account.name} file=${file} />
      <${ActionButton} label="Keep this" title=${`${file.path}, ${sideLabel(conflict, side)}`} run=${keep(side)} /></div>`;
  return html`<section class="card" aria-label=${copy.path}>
    <h2 class="name">${shownName(original?.path ?? copy.path)}: two contents</h2>
    ${original === null ? html`<p>The file itself is gone; the copy is left.</p>` : null}
    <div class="sides">${original === null ? null : column('original', original)}${column('copy', copy)}</div>
    ${original === null ? null : html`<${SidesText} account=${account.name} conflict=${conflict} original=${original} />`}
    <div class="buttons"><${ActionButton} label="Keep both" title=${copy.path} run=${keep('both')} /></div></section>`;
}

function SidePicture({ account, file }: { readonly account: string; readonly file: ConflictSide }): View {
  const type = pictureTypeOf(file.path);
  if (type === null || file.sizeBytes > PICTURE_BYTES_MAX) return null;
  return html`<${Picture} key=${`${file.path} ${file.modifiedMs}`} alt=${file.path} type=${type} read=${() => bytes('content', { account, path: file.path })} />`;
}

/** The differences of two texts, on demand: a conflict may be in files that are not here. */
function SidesText(props: {
  readonly account: string;
  readonly conflict: Conflict;
  readonly original: ConflictSide;
}): View {
  const { account, conflict, original } = props;
  const [texts, setTexts] = useState<readonly [string | null, string | null] | null>(null);
  const isPossible =
    pictureTypeOf(original.path) === null && Math.max(original.sizeBytes, conflict.copy.sizeBytes) <= TEXT_BYTES_MAX;
  if (!isPossible) return null;
  const compare = (): Promise<boolean> =>
    act(async () => {
      const [one, other] = await Promise.all(
        [original.path, conflict.copy.path].map((path) => bytes('content', { account, path })),
      );
      setTexts([await textOf(one as Blob), await textOf(other as Blob)]);
      return null;
    });
  if (texts === null) return html`<p><button type="button" onClick=${compare}>Compare</button></p>`;
  const [before, after] = texts;
  if (before === null || after === null)
    return html`<p class="quiet">They are not texts: save both to compare them.</p>`;
  const label = (side: 'original' | 'copy', file: ConflictSide): string =>
    `${sideLabel(conflict, side)}, ${localTime(file.modifiedMs)}`;
  return html`<${TextDiff} before=${before} after=${after} beforeLabel=${label('original', original)} afterLabel=${label('copy', conflict.copy)} />`;
}
